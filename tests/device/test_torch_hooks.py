"""Iterations are found in loops of every kind, and scripts notice nothing."""

import copy
import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Record:
    """A gate that keeps a diary: ( begins an iteration, ) ends one."""

    def __init__(self) -> None:
        self.on_recall: Callable[[], None] | None = None
        self.diary = ""
        self.inside = False

    def begin(self) -> None:
        if not self.inside:
            self.inside, self.diary = True, self.diary + "("

    def end(self) -> None:
        if self.inside:
            self.inside, self.diary = False, self.diary + ")"

    def note(self, what: str) -> None:
        self.diary += what

    def forget(self) -> None:
        self.diary += "!"


Loop = Callable[[Record], object]


def diary_of(loop: Loop) -> str:
    """Run a loop under hooks in a forked process, because hooks stay; return its diary."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = _hooked(loop)
        except BaseException:
            told = traceback.format_exc()
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = json.loads(answer.read())
    os.waitpid(pid, 0)
    return cast("str", told)


def _hooked(loop: Loop) -> str:
    from interlane.device.torch_hooks import TorchHooks

    torch.set_num_threads(1)
    record = Record()
    TorchHooks(torch, record, lambda: record)
    loop(record)
    return record.diary


class Net(nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

    def forward(self, inputs: Any) -> Any:  # noqa: ANN401
        return self.layers(inputs)


INPUTS = torch.ones(2, 4)


def trained(model: Any, steps: int, record: Record, optimizer: Any = None) -> None:  # noqa: ANN401
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        record.note("d")
        model(INPUTS).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def plain(record: Record) -> None:
    trained(Net(), 8, record)


def of_torchs_own_class(record: Record) -> None:
    trained(nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 1)), 8, record)


def accumulating(record: Record) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
        record.note("d")
        model(INPUTS).sum().backward()
        if step % 3 == 2:
            optimizer.step()


def with_two_optimizers(record: Record) -> None:
    maker, judge = Net(), nn.Linear(1, 1)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (maker, judge)]
    for _ in range(6):
        judge(maker(INPUTS)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def adversarial(record: Record) -> None:
    maker, judge = Net(), nn.Linear(1, 1)
    of_maker, of_judge = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (maker, judge))
    for _ in range(6):
        judge(maker(INPUTS).detach()).sum().backward()
        of_judge.step()
        judge(maker(INPUTS)).sum().backward()
        of_maker.step()


def leaving_steps_out(record: Record) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        record.note("d")
        model(INPUTS).sum().backward()
        if step % 3 != 1:
            optimizer.step()


def with_a_closure(record: Record) -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, line_search_fn=None)

    def closure() -> Any:  # noqa: ANN401
        optimizer.zero_grad()
        loss = model(INPUTS).square().sum()
        loss.backward()
        return loss

    for _ in range(6):
        record.note("d")
        optimizer.step(closure)


def inferring(record: Record) -> None:
    model = Net().eval()
    for _ in range(8):
        record.note("d")
        with torch.no_grad():
            model(INPUTS)


def in_inference_mode(record: Record) -> None:
    model = Net()
    for _ in range(8):
        record.note("d")
        with torch.inference_mode():
            model(INPUTS)


def evaluating_with_gradients(record: Record) -> None:
    model = Net().eval()
    for _ in range(4):
        record.note("d")
        model(INPUTS)


def with_a_teacher(record: Record) -> None:
    model, teacher = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        answer = model(INPUTS)
        with torch.no_grad():
            aim = teacher(INPUTS)
        (answer - aim).square().sum().backward()
        optimizer.step()


def without_modules(record: Record) -> None:
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(12):
        record.note("d")
        (weight * INPUTS).sum().backward()
        optimizer.step()


def stepping_in_the_backward_pass(record: Record) -> None:
    model = Net()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        parameter.register_post_accumulate_grad_hook(
            lambda _, optimizer=optimizer: optimizer.step()
        )
    for _ in range(6):
        record.note("d")
        model(INPUTS).sum().backward()


LOOPS: dict[str, tuple[Loop, str]] = {
    "a plain loop": (plain, "d()" * 8),
    "a model of torch's own class": (of_torchs_own_class, "d()" * 8),
    "gradient accumulation": (accumulating, "d(dd)" * 4),
    "two optimizers after one backward pass": (with_two_optimizers, "()()" * 6),
    "adversarial training": (adversarial, "()()" * 6),
    # The step that is left out shows at the next forward pass.
    "steps left out by a scaler": (leaving_steps_out, "d()d(d)()" * 3),
    "a closure": (with_a_closure, "d()" * 6),
    "inference": (inferring, "d()" * 8),
    "inference mode": (in_inference_mode, "d()" * 8),
    "evaluation with gradients": (evaluating_with_gradients, "d(" + "d)(" * 3),
    "a teacher without gradients": (with_a_teacher, "()" * 8),
    # Seven steps pass before modules are not waited for; then each step ends an iteration.
    "no modules": (without_modules, "d()" * 8 + "(" + "d)(" * 4),
}


@pytest.mark.parametrize("name", LOOPS)
def test_every_kind_of_loop_is_cut_into_iterations(name: str) -> None:
    loop, expected = LOOPS[name]

    assert diary_of(loop) == expected


def test_steps_inside_the_backward_pass_end_no_iteration_there() -> None:
    diary = diary_of(stepping_in_the_backward_pass)

    # One iteration a forward pass, each ended by the next one.
    assert diary == "d(" + "d)(" * 5


def test_models_are_copied_pickled_and_saved_as_if_nothing_watched_them() -> None:
    def loop(record: Record) -> None:
        model = Net()
        trained(model, 6, record)
        twin = copy.deepcopy(model)
        again = pickle.loads(pickle.dumps(model))
        record.diary = ""
        with torch.no_grad():
            twin(INPUTS)
            again(INPUTS)
        trained(twin, 2, record)
        record.note(str(len(model._forward_pre_hooks) + len(model._forward_hooks)))

    assert diary_of(loop) == "()()" + "d()d()" + "0"


def test_modules_keep_nothing_once_the_model_is_known() -> None:
    def loop(record: Record) -> None:
        trained(Net(), 6, record)
        module = torch.nn.modules.module
        record.diary = f"{len(module._global_forward_pre_hooks)}"
        record.note(f"{'__call__' in vars(nn.Linear)}")

    assert diary_of(loop) == "0False"


def test_a_model_that_turns_up_later_is_found_by_its_steps() -> None:
    class Other(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, inputs: Any) -> Any:  # noqa: ANN401
            return self.layer(inputs)

    def loop(record: Record) -> None:
        trained(Net(), 6, record)
        record.diary = ""
        trained(Other(), 16, record)

    diary = diary_of(loop)
    assert diary.startswith("d()" * 8)
    assert diary.endswith("d()" * 6)


def test_a_model_that_only_infers_is_found_when_the_daemon_asks() -> None:
    def loop(record: Record) -> None:
        trained(Net(), 6, record)
        record.diary = ""
        late = nn.Linear(4, 1)
        with torch.no_grad():
            late(INPUTS)
            assert record.on_recall is not None
            record.on_recall()
            late(INPUTS)
            late(INPUTS)

    assert diary_of(loop) == "()()"


def test_a_search_that_begins_while_a_model_waits_takes_no_layer_for_a_model() -> None:
    def loop(record: Record) -> None:
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        begin = record.begin

        def asked_while_waiting() -> None:
            assert record.on_recall is not None
            if not record.inside:
                record.on_recall()  # the daemon cancels what was granted to a slow waker
            begin()

        record.begin = asked_while_waiting  # type: ignore[method-assign]
        for number in range(12):
            model(INPUTS).sum().backward()
            if number % 4 != 3:  # as a scaler leaves steps out
                optimizer.step()

    assert diary_of(loop).count("(") == 12


def test_other_threads_are_left_alone() -> None:
    def loop(record: Record) -> None:
        trained(Net(), 2, record)
        thread = threading.Thread(target=lambda: Net()(INPUTS))
        thread.start()
        thread.join()

    assert diary_of(loop) == "d()d()"


def test_a_failed_forward_pass_does_not_confuse_the_search() -> None:
    def loop(record: Record) -> None:
        model = Net()
        for _ in range(3):
            with pytest.raises(RuntimeError):
                model(torch.ones(2, 3))
        trained(model, 6, record)

    assert diary_of(loop) == "(" + "d)" + "d()" * 5


def test_a_forked_child_is_not_gated_until_it_trains() -> None:
    from interlane.device.torch_hooks import TorchHooks

    def loop(record: Record) -> None:
        attached = Record()
        hooks = TorchHooks(torch, record, lambda: attached)
        hooks.orphan()
        model = Net()
        with torch.no_grad():
            model(INPUTS)
        parents, record.diary = record.diary, ""
        trained(model, 3, attached)
        record.diary = f"{parents} {attached.diary}"

    # The child's first step attaches it; from then on it is a job like any other.
    assert "d()d()d()" in diary_of(loop)
