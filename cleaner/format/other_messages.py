"""
The records of `__transaction_state` and `__share_group_state`, of control batches, and the data of classic groups.

Written in the notation of `message_schema.py`. Facts of Kafka 4.3: the messages of its coordinators and of its clients.
"""

from __future__ import annotations

TRANSACTION_RECORDS = """\
key 0 0
  transactionalId string
value 0 0-1 flexible 1+
  producerId int64
  previousProducerId int64 1+ #0=-1
  nextProducerId int64 1+ #1=-1
  producerEpoch int16
  nextProducerEpoch int16 1+ #3=-1
  transactionTimeoutMs int32
  transactionStatus int8
  transactionPartitions []struct ?
    topic string
    partitionIds []int32
  transactionLastUpdateTimestampMs int64
  transactionStartTimestampMs int64
  clientTransactionVersion int16 1+ #2=0
"""

SHARE_RECORDS = """\
key 0 0
  groupId string
  topicId uuid
  partition int32
value 0 0 flexible 0+
  snapshotEpoch int32
  stateEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 #0=-1
  createTimestamp int64
  writeTimestamp int64
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
key 1 0
  groupId string
  topicId uuid
  partition int32
value 1 0 flexible 0+
  snapshotEpoch int32
  leaderEpoch int32
  startOffset int64
  deliveryCompleteCount int32 #0=-1
  stateBatches []struct
    firstOffset int64
    lastOffset int64
    deliveryState int8
    deliveryCount int16
"""

CONTROL_RECORDS = """\
LeaderChange 2 0-1 flexible 0+
  version int16
  leaderId int32
  voters []struct
    voterId int32
    voterDirectoryId uuid 1+
  grantingVoters []struct
    voterId int32
    voterDirectoryId uuid 1+
SnapshotHeader 3 0 flexible 0+
  version int16
  lastContainedLogTimestamp int64
SnapshotFooter 4 0 flexible 0+
  version int16
KRaftVersion 5 0 flexible 0+
  version int16
  kRaftVersion int16
KRaftVoters 6 0 flexible 0+
  version int16
  voters []struct
    voterId int32
    voterDirectoryId uuid
    endpoints []struct
      name string
      host string
      port uint16
    kRaftVersionFeature struct
      minSupportedVersion int16
      maxSupportedVersion int16
"""

CONSUMER_PROTOCOL = """\
subscription 0 0-3
  topics []string
  userData bytes ?
  ownedPartitions []struct 1+
    topic string 1+
    partitions []int32 1+
  generationId int32 2+
  rackId string 3+ ?
assignment 1 0-3
  assignedPartitions []struct
    topic string
    partitions []int32
  userData bytes ?
"""
