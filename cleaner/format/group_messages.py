"""
The records of `__consumer_offsets`: commits, and groups of all kinds.

Written in the notation of `message_schema.py`. Facts of Kafka 4.3: the messages of its group coordinator.
"""

from __future__ import annotations

GROUP_RECORDS = """\
key 0 0
  group string
  topic string
  partition int32
value 0 0
  offset int64
  metadata string
  commitTimestamp int64
key 1 0
  group string
  topic string
  partition int32
value 1 0-4 flexible 4+
  offset int64
  leaderEpoch int32 3+
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1
  topicId uuid 4+ #0
key 2 0
  group string
value 2 0-4 flexible 4+
  protocolType string
  generation int32
  protocol string ?
  leader string ?
  currentStateTimestamp int64 2+
  members []struct
    memberId string
    groupInstanceId string 3+ ?
    clientId string
    clientHost string
    rebalanceTimeout int32 1+
    sessionTimeout int32
    subscription bytes
    assignment bytes
key 3 0
  groupId string
value 3 0 flexible 0+
  epoch int32
  metadataHash int64 #0=0
key 4 0
  groupId string
value 4 0 flexible 0+
  topics []struct
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []struct
      partition int32
      racks []string
key 5 0
  groupId string
  memberId string
value 5 0 flexible 0+
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string ?
  rebalanceTimeoutMs int32
  serverAssignor string ?
  classicMemberMetadata struct ? #0=null
    sessionTimeoutMs int32
    supportedProtocols []struct
      name string
      metadata bytes
key 6 0
  groupId string
value 6 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0=0
key 7 0
  groupId string
  memberId string
value 7 0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
key 8 0
  groupId string
  memberId string
value 8 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  partitionsPendingRevocation []struct
    topicId uuid
    partitions []int32
    assignmentEpochs []int32 ? #0=null
key 10 0
  groupId string
  memberId string
value 10 0 flexible 0+
  rackId string ?
  clientId string
  clientHost string
  subscribedTopicNames []string
key 11 0
  groupId string
value 11 0 flexible 0+
  epoch int32
  metadataHash int64
key 12 0
  groupId string
value 12 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0=0
key 13 0
  groupId string
  memberId string
value 13 0 flexible 0+
  topicPartitions []struct
    topicId uuid
    partitions []int32
key 14 0
  groupId string
  memberId string
value 14 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []struct
    topicId uuid
    partitions []int32
key 15 0
  groupId string
value 15 0 flexible 0+
  initializingTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []struct
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []struct
    topicId uuid
    topicName string
key 16 0
  groupId string
  regularExpression string
value 16 0 flexible 0+
  topics []string
  version int64
  timestamp int64
key 17 0
  groupId string
value 17 0 flexible 0+
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 #0=-1
  lastAssignmentConfigs []struct ? #1=null
    key string
    value string
key 19 0
  groupId string
  memberId string
value 19 0 flexible 0+
  instanceId string ?
  rackId string ?
  clientId string
  clientHost string
  rebalanceTimeoutMs int32
  topologyEpoch int32
  processId string
  userEndpoint struct ?
    host string
    port uint16
  clientTags []struct
    key string
    value string
key 20 0
  groupId string
value 20 0 flexible 0+
  assignmentEpoch int32
  assignmentTimestamp int64 #0=0
key 21 0
  groupId string
  memberId string
value 21 0 flexible 0+
  activeTasks []struct
    subtopologyId string
    partitions []int32
  standbyTasks []struct
    subtopologyId string
    partitions []int32
  warmupTasks []struct
    subtopologyId string
    partitions []int32
key 22 0
  groupId string
  memberId string
value 22 0 flexible 0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  standbyTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  warmupTasks []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  activeTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  standbyTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
  warmupTasksPendingRevocation []struct
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32 ? #0=null
key 23 0
  groupId string
value 23 0 flexible 0+
  epoch int32
  subtopologies []struct
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []struct
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []struct
        key string
        value string
    copartitionGroups []struct
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
"""
