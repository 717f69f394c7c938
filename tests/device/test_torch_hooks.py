"""Iterations are found in loops of every kind, and scripts notice nothing."""

import copy
import json
import os
import pickle
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


class Record:
    """A gate that keeps a diary: ( begins an iteration, ) ends one."""

    def __init__(self) -> None:
        self.lends = False
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
    return answer_of(lambda: _hooked(loop))


def answer_of(ask: Callable[[], str]) -> str:
    """Return what a function returns in a forked process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = ask()
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


def without_an_optimizer(record: Record) -> None:
    model = Net()
    for _ in range(9):
        record.note("d")
        model.zero_grad()
        model(INPUTS).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad


def with_gradients_of_functions(record: Record) -> None:
    model = Net()
    values = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: Any) -> Any:  # noqa: ANN401
        return torch.func.functional_call(model, values, (INPUTS,)).square().mean()

    for _ in range(9):
        record.note("d")
        slopes = torch.func.grad(loss)(values)
        values = {name: value - 0.1 * slopes[name] for name, value in values.items()}


def with_a_penalty_on_gradients(record: Record) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        record.note("d")
        inputs = INPUTS.clone().requires_grad_()
        answer = model(inputs).sum()
        (slope,) = torch.autograd.grad(answer, inputs, create_graph=True)
        (answer + slope.square().sum()).backward()
        optimizer.step()


def with_checkpoints(record: Record) -> None:
    from torch.utils.checkpoint import checkpoint

    class Thrifty(Net):
        def forward(self, inputs: Any) -> Any:  # noqa: ANN401
            return checkpoint(self.layers, inputs, use_reentrant=True)

    model = Thrifty()
    for _ in range(9):
        record.note("d")
        model(INPUTS.clone().requires_grad_()).sum().backward()


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
    # The first passes may be those of an optimizer that steps seldom.
    "no optimizer": (without_an_optimizer, "d(dddd)" + "d()" * 4),
    "gradients of functions": (with_gradients_of_functions, "d(dddd)" + "d()" * 4),
    "a penalty on gradients": (with_a_penalty_on_gradients, "d()" * 8),
    "a backward pass inside a backward pass": (with_checkpoints, "d(dddd)" + "d()" * 4),
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


def test_a_model_that_turns_up_later_is_gated_from_its_first_pass_on() -> None:
    def loop(record: Record) -> None:
        trained(Net(), 6, record)
        record.diary = ""
        trained(nn.Sequential(nn.Linear(4, 1)), 3, record)
        late = nn.Linear(4, 1)
        with torch.no_grad():
            late(INPUTS)

    assert diary_of(loop) == "d()" * 3 + "()"


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


# -- what torch makes of a program is what it makes of it alone ------------------------------


def graphs_of(use: Callable[[], object]) -> str:
    """Compile and trace things; return what the compiler and the tracer made of them."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    told = use()
    stats = torch._dynamo.utils.counters["stats"]
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return f"{told} {dict(stats)} {breaks}"


def compiled_functions() -> object:
    """Compile a function that calls a module, in one graph, and train by it."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(fullgraph=True, backend="aot_eager")  # type: ignore[untyped-decorator,unused-ignore]
    def loss_of(inputs: Any) -> Any:  # noqa: ANN401
        return model(inputs).square().mean()

    for _ in range(12):
        optimizer.zero_grad()
        loss_of(INPUTS).backward()
        optimizer.step()
    return loss_of(INPUTS) < 100


def compiled_model() -> object:
    return trained_compiled(torch.compile(Net(), fullgraph=True, backend="aot_eager"))


def model_that_compiles_itself() -> object:
    model = Net()
    model.compile(fullgraph=True, backend="aot_eager")
    return trained_compiled(model)


def trained_compiled(model: Any) -> object:  # noqa: ANN401
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        model(INPUTS).square().mean().backward()
        optimizer.step()
    return None


def compiled_without_a_promise() -> object:
    model = Net()

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator,unused-ignore]
    def loss_of(inputs: Any) -> Any:  # noqa: ANN401
        return model(inputs).square().mean()

    for _ in range(6):
        loss_of(INPUTS)
    with torch.no_grad():
        loss_of(INPUTS)
    return None


def traced() -> object:
    plain = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(8):
        plain(INPUTS).sum().backward()
        optimizer.step()
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Net())).graph
    return [(node.op, str(node.target)) for node in graph.nodes]


def exported() -> object:
    model = Net()
    graph = torch.export.export(model, (INPUTS,)).graph
    return [(node.op, str(node.target)) for node in graph.nodes]


@pytest.mark.parametrize(
    "use",
    [
        compiled_functions,
        compiled_model,
        model_that_compiles_itself,
        compiled_without_a_promise,
        traced,
        exported,
    ],
)
@pytest.mark.parametrize("compiler", ["comes after the hooks", "was there before"])
def test_compilers_and_tracers_see_the_same_program(
    use: Callable[[], object], compiler: str
) -> None:
    def alone() -> str:
        import_module("torch._dynamo")
        return graphs_of(use)

    def hooked(record: Record) -> None:
        import_module("torch._dynamo")
        record.diary = graphs_of(use)

    if compiler == "was there before":  # as in a fork server
        import_module("torch._dynamo")

    seen = answer_of(alone)
    assert "Traceback" not in seen
    assert diary_of(hooked) == seen
