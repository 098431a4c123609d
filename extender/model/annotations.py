"""The names of the annotations and labels that this extender reads or writes."""

# A pod: the gang that it names, in the ways of each dialect, and the size of that gang.
GANG = "gang-extender.io/gang"
GROUP_NAME = "scheduling.k8s.io/group-name"
VOLCANO_GROUP_NAME = "scheduling.volcano.sh/group-name"
COSCHEDULING_GROUP = "scheduling.x-k8s.io/pod-group"
SIGS_GROUP = "pod-group.scheduling.sigs.k8s.io/name"
MIN_MEMBER = "gang-extender.io/min-member"
GROUP_MIN_MEMBER = "scheduling.k8s.io/group-min-member"
VOLCANO_GROUP_MIN_MEMBER = "scheduling.volcano.sh/group-min-member"
SIGS_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"

# A pod: its part in the gang.
ROLE = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTABLE = "volcano.sh/preemptable"

#: The queue of a pod without a PodGroup.
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
#: Written with the binding: the queue in which the pod was started.
STARTED_IN = "gang-extender.io/started-in"
#: Written to wake a pod: when, and by which extender.
WOKEN = "gang-extender.io/woken"
#: How long a pod or the pods of a PodGroup run, as their author declares.
DURATION = "gang-extender.io/duration"

# A PodGroup; the last four belong to plugins of Volcano without a counterpart here.
SLA_WAITING_TIME = "volcano.sh/sla-waiting-time"
SHORT_SLA_WAITING_TIME = "sla-waiting-time"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
COOLDOWN = "volcano.sh/cooldown-time"

# A Queue; the last one belongs to a plugin of Volcano without a counterpart here.
LEND_GUARANTEE = "gang-extender.io/lend-guarantee"
HIERARCHY = "volcano.sh/hierarchy"
HIERARCHY_WEIGHTS = "volcano.sh/hierarchy-weights"
NODE_GROUPS = "volcano.sh/nodegroup-resource-limits"

# A Namespace, which only administrators can write.
HOME_QUEUE = QUEUE_NAME
ALLOWED_QUEUES = "gang-extender.io/queues"
ALLOWED_CLASSES = "gang-extender.io/priority-classes"
LIMIT = "gang-extender.io/at-most"
GUARANTEE = "gang-extender.io/at-least"

#: The weight of a namespace, among the hard limits of a ResourceQuota.
NAMESPACE_WEIGHT = "volcano.sh/namespace.weight"

#: The label of the pod of the leading extender, and the annotation that names its lease.
LEADER = "gang-extender.io/leader"
LEADS_BY = "gang-extender.io/leads-by"
