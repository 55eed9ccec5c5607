"""
The records of KRaft's metadata log.

Written in the notation of `message_schema.py`. Facts of Kafka 4.3: the messages of its controllers.
"""

from __future__ import annotations

CLUSTER_RECORDS = """\
REGISTER_BROKER_RECORD 0 0-4 flexible 0+
  brokerId int32
  isMigratingZkBroker bool 2+
  incarnationId uuid
  brokerEpoch int64
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
  rack string ?
  fenced bool
  inControlledShutdown bool 1+
  logDirs []uuid 3+ #0
  cordonedLogDirs []uuid 4+ ? #1=null
UNREGISTER_BROKER_RECORD 1 0 flexible 0+
  brokerId int32
  brokerEpoch int64
TOPIC_RECORD 2 0 flexible 0+
  name string
  topicId uuid
PARTITION_RECORD 3 0-2 flexible 0+
  partitionId int32
  topicId uuid
  replicas []int32
  isr []int32
  removingReplicas []int32
  addingReplicas []int32
  leader int32
  leaderRecoveryState int8 #0=0
  leaderEpoch int32
  partitionEpoch int32
  directories []uuid 1+
  eligibleLeaderReplicas []int32 2+ ? #1=null
  lastKnownElr []int32 2+ ? #2=null
CONFIG_RECORD 4 0 flexible 0+
  resourceType int8
  resourceName string
  name string
  value string ?
PARTITION_CHANGE_RECORD 5 0-2 flexible 0+
  partitionId int32
  topicId uuid
  isr []int32 ? #0=null
  leader int32 #1=-2
  replicas []int32 ? #2=null
  removingReplicas []int32 ? #3=null
  addingReplicas []int32 ? #4=null
  leaderRecoveryState int8 #5=-1
  directories []uuid 1+ ? #8=null
  eligibleLeaderReplicas []int32 2+ ? #6=null
  lastKnownElr []int32 2+ ? #7=null
FENCE_BROKER_RECORD 7 0 flexible 0+
  id int32
  epoch int64
UNFENCE_BROKER_RECORD 8 0 flexible 0+
  id int32
  epoch int64
REMOVE_TOPIC_RECORD 9 0 flexible 0+
  topicId uuid
DELEGATION_TOKEN_RECORD 10 0 flexible 0+
  owner string
  requester string
  renewers []string
  issueTimestamp int64
  maxTimestamp int64
  expirationTimestamp int64
  tokenId string
USER_SCRAM_CREDENTIAL_RECORD 11 0 flexible 0+
  name string
  mechanism int8
  salt bytes
  storedKey bytes
  serverKey bytes
  iterations int32
FEATURE_LEVEL_RECORD 12 0 flexible 0+
  name string
  featureLevel int16
CLIENT_QUOTA_RECORD 14 0 flexible 0+
  entity []struct
    entityType string
    entityName string ?
  key string
  value float64
  remove bool
PRODUCER_IDS_RECORD 15 0 flexible 0+
  brokerId int32
  brokerEpoch int64
  nextProducerId int64
BROKER_REGISTRATION_CHANGE_RECORD 17 0-3 flexible 0+
  brokerId int32
  brokerEpoch int64
  fenced int8 #0
  inControlledShutdown int8 1+ #1
  logDirs []uuid 2+ #2
  cordonedLogDirs []uuid 3+ ? #3=null
ACCESS_CONTROL_ENTRY_RECORD 18 0 flexible 0+
  id uuid
  resourceType int8
  resourceName string
  patternType int8
  principal string
  host string
  operation int8
  permissionType int8
REMOVE_ACCESS_CONTROL_ENTRY_RECORD 19 0 flexible 0+
  id uuid
NO_OP_RECORD 20 0 flexible 0+
ZK_MIGRATION_STATE_RECORD 21 0 flexible 0+
  zkMigrationState int8
REMOVE_USER_SCRAM_CREDENTIAL_RECORD 22 0 flexible 0+
  name string
  mechanism int8
BEGIN_TRANSACTION_RECORD 23 0 flexible 0+
  name string ? #0=null
END_TRANSACTION_RECORD 24 0 flexible 0+
ABORT_TRANSACTION_RECORD 25 0 flexible 0+
  reason string ? #0=null
REMOVE_DELEGATION_TOKEN_RECORD 26 0 flexible 0+
  tokenId string
REGISTER_CONTROLLER_RECORD 27 0 flexible 0+
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  endPoints []struct
    name string
    host string
    port uint16
    securityProtocol int16
  features []struct
    name string
    minSupportedVersion int16
    maxSupportedVersion int16
CLEAR_ELR_RECORD 28 0 flexible 0+
  topicName string
"""
