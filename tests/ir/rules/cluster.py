"""The cluster in a plan."""

from dataclasses import replace

from tests.ir.rules.plan_changes import SHARED, VLM, PlanCases, node

CASES: PlanCases = {
    "there_is_a_node": {
        "no node": lambda: replace(VLM, cluster=replace(VLM.cluster, nodes=())),
    },
    "kinds_are_declared": {
        "kind of device": lambda: node(VLM, device="cor"),
    },
    "nodes_are_counted": {
        "no cores": lambda: node(VLM, cores=0),
    },
    "seats_are_counted": {
        "too many devices": lambda: node(VLM, devices=10**12),
    },
    "devices_are_described": {
        "no slots": lambda: replace(
            VLM, cluster=replace(VLM.cluster, kinds=(replace(VLM.cluster.kinds[0], slots=0),))
        ),
    },
    "cluster_names_are_unique": {
        "node twice": lambda: replace(
            VLM, cluster=replace(VLM.cluster, nodes=(VLM.cluster.nodes[0], VLM.cluster.nodes[0]))
        ),
    },
    "speeds_are_positive": {
        "no speed": lambda: replace(
            SHARED,
            cluster=replace(
                SHARED.cluster,
                kinds=(replace(SHARED.cluster.kinds[0], flops=(("float32", 0.0),)),),
            ),
        ),
    },
}
