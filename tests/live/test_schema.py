"""Whatever the description of the API allows, and much that it does not, is answered."""

from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok

from interlane.live.auth import Role
from interlane.testing.live import driving, serving, this_machine
from interlane.testing.pretend import PretendEngine

EXAMPLES = 6
"""Requests to each route; more would say more, at a price."""

ENDLESS = "/api/v1/watch"
FEW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


# What is submitted here is random, so that nothing of it may be run.
def test_no_request_makes_the_server_fail(tmp_path: Path) -> None:
    engine = PretendEngine(this_machine().machines, ends_at_once=True)
    with driving(tmp_path, engine=engine) as driver, serving(driver) as (url, tokens):
        headers = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
        schema = schemathesis.openapi.from_url(f"{url}/api/v1/openapi.json", headers=headers)
        tried = 0
        for result in schema.exclude(path=ENDLESS).get_all_operations():
            assert isinstance(result, Ok)

            @FEW
            @given(case=result.ok().as_strategy())
            def answers(case: schemathesis.Case[Any]) -> None:
                answer = case.call(headers=headers)
                case.validate_response(answer, checks=[not_a_server_error], headers=headers)

            answers()
            tried += 1

    assert tried == 38
