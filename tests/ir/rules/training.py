"""What is trained and evaluated."""

from dataclasses import replace

from flowgraph.ir.graph import Graph, Stage
from flowgraph.ir.types import Field
from tests.ir.rules.changes import INT, Cases, added, agent, lacking, module, stage, typed
from tests.passes.graphs import marl, ref, vlm


def second_trainer() -> Graph:
    old = vlm().stage("train-lm")
    return added(vlm(), replace(old, name="again", modules=("lm",)))


CASES: Cases = {
    "steps_agree": {
        "steps disagree": lambda: stage(marl(), "train-verifier", attributes={"batch": 8}),
    },
    "one_trainer_a_module": {
        "trained twice": second_trainer,
    },
    "tokens_are_there": {
        "no tokens": lambda: lacking(lacking(vlm(), "packs", "tokens"), "joined", "tokens"),
        "tokens' type": lambda: typed(
            typed(vlm(), "packs", replace(INT, name="tokens")),
            "joined",
            replace(INT, name="tokens"),
        ),
    },
    "pack_feeds_trainers": {
        "who reads packs": lambda: added(
            vlm(), Stage(name="show", op="sink", inputs=("packs",), function=ref("f"))
        ),
    },
    "packs_hold_tokens": {
        "pack's length": lambda: stage(vlm(), "pack", attributes={"tokens": 0}),
    },
    "counts_are_positive": {
        "batch": lambda: vlm(batch=0),
    },
    "bounds_are_not_negative": {
        "clip": lambda: stage(vlm(), "train-lm", attributes={"clip": -1.0}),
    },
    "batch_divides": {
        "updates": lambda: stage(vlm(), "train-lm", attributes={"updates": 5}),
    },
    "optimizer_is_known": {
        "optimizer": lambda: stage(
            vlm(), "train-lm", attributes={"optimizer": {"name": "adamww", "lr": 1.0}}
        ),
    },
    "learning_rate_is_given": {
        "learning rate": lambda: stage(
            vlm(), "train-lm", attributes={"optimizer": {"name": "adam"}}
        ),
    },
    "something_is_trained": {
        "nothing to train": lambda: stage(vlm(), "train-lm", modules=()),
        "frozen": lambda: module(marl(), "solver", trainable=False),
    },
    "modules_are_listed_once": {
        "module listed twice": lambda: stage(vlm(), "train-lm", modules=("lm", "lm")),
    },
    "mask_is_as_long": {
        "no mask": lambda: lacking(marl(), "train-solver.credit", "loss_mask"),
        "mask's length": lambda: typed(
            marl(), "train-solver.credit", Field(name="loss_mask", dtype="float32")
        ),
    },
    "loss_has_its_fields": {
        "loss's needs": lambda: stage(
            marl(), "train-solver", attributes={"needs": ("advantages",)}
        ),
        "what trainers make": lambda: lacking(marl(), "train-solver.credit", "logprobs"),
    },
    "reference_is_given": {
        "no reference": lambda: stage(
            marl(), "train-solver", attributes={"needs": ("reference_logprobs",)}
        ),
    },
    "reference_is_declared": {
        "unknown reference": lambda: stage(marl(), "train-solver", attributes={"reference": "ref"}),
    },
    "reference_stays": {
        "trained reference": lambda: stage(
            marl(), "train-solver", attributes={"reference": "verifier"}
        ),
    },
    "sampled_tokens_have_a_chance": {
        "temperature 0": lambda: agent(marl(), "solver", sampling={"temperature": 0.0}),
    },
    "evaluated_stage_exists": {
        "evaluated stage": lambda: stage(vlm(), "held-out", attributes={"of": "train"}),
    },
    "evaluation_has_a_metric": {
        "metric": lambda: stage(vlm(), "held-out", function=None),
    },
    "evaluations_are_counted": {
        "evaluated samples": lambda: stage(vlm(), "held-out", attributes={"samples": 0}),
    },
}
