"""The mends of what attackers found, taken out one at a time: the test of each notices.

``docs/results/attacks.md`` lists the findings; ``planted`` plants these with all others.
"""

from typing import Final

from interlane.testing.planted_bug import PlantedBug

LIVE, LOCAL, PAGES = "tests/live", "tests/engines/local", "tests/pages"
BOUNDS, IDENTITY = f"{LIVE}/test_bounds.py", f"{LIVE}/test_identity.py"


def _found(
    finding: str, module: str, what: str, old: str, new: str, breaks: str, *noticed_by: str
) -> PlantedBug:
    return PlantedBug(f"interlane.{module}", what, old, new, breaks, noticed_by, finding)


FINDINGS: Final[tuple[PlantedBug, ...]] = (
    _found(
        "F1",
        "engines.local.claims",
        "a claim of another job counts as a job's own",
        "return any(said.get(name) != value for name, value in whose.items())",
        "return False",
        "Nothing is reported that did not run.",
        f"{IDENTITY}::test_a_foreign_claim_means_that_the_attempt_never_ran",
    ),
    _found(
        "F2",
        "engines.local.others",
        "what another host began is looked for here, and found missing",
        "        if not holder.is_here:",
        "        if False:",
        "A server that does not hold an attempt never declares it dead.",
        f"{LIVE}/test_takeover.py::test_what_another_host_holds_is_unknown_and_is_not_started",
    ),
    _found(
        "F3",
        "live.connections",
        "a header is waited for without end",
        """\
        super().connection_made(transport)
        self._expect(self._bounds.header_s)
""",
        """\
        super().connection_made(transport)
""",
        "Who connects and says nothing is cut off.",
        f"{BOUNDS}::test_a_header_that_does_not_come_ends_the_connection",
    ),
    _found(
        "F4",
        "engines.local.launch",
        "secrets of admins are everybody's",
        "return [*files, self.folder / name] if user == ADMIN else files",
        "return [*files, self.folder / name]",
        "A secret has an owner.",
        f"{LOCAL}/test_accounts.py::test_a_user_names_no_secret_of_anybody_else",
    ),
    _found(
        "F6",
        "live.questions.desk",
        "a question is answered once for each who asks",
        "asked = self._asked.get((kind, what)) or self._begun(kind, what, find)",
        "asked = self._begun(kind, (what, len(self._asked)), find)",
        "One play is shared by all who ask the same.",
        f"{BOUNDS}::test_who_asks_the_same_shares_the_answer",
    ),
    _found(
        "F7",
        "live.driver.loop",
        "a batch is refused whole for one item that raises",
        "if _is_ours(error) and len(items) > 1 and self._one_by_one(items, error):",
        "if False:",
        "One bad input hurts its sender only.",
        f"{LIVE}/test_bad_input.py::test_a_job_that_makes_the_scheduler_raise_is_refused_alone",
    ),
    _found(
        "F8",
        "engines.local.launch",
        "a gang of any size is started",
        "        if instances > self.instances:",
        "        if instances > 10**9:",
        "The processes of a job have a bound.",
        f"{LIVE}/test_shortage.py"
        "::test_a_gang_of_more_processes_than_may_start_together_is_refused",
    ),
    _found(
        "F9",
        "engines.local.functions.replica",
        "brackets without end take the replica along",
        """\
                answers.append(None)
            except Exception as error:
""",
        """\
                answers.append(None)
            except ValueError as error:
""",
        "A batch survives one bad member.",
        f"{LOCAL}/test_replica_answers.py",
    ),
    _found(
        "F10",
        "live.http.watchers",
        "who watches is not told that their token is revoked",
        "        while self.may(caller):",
        "        while True:",
        "Revoked means revoked, for open streams too.",
        f"{BOUNDS}::test_a_stream_ends_when_its_token_is_revoked",
    ),
    _found(
        "F11",
        "live.http.watchers",
        "anybody may watch as often as they like",
        "if self._watching[name] >= self._each:",
        "if self._watching[name] >= 10**9:",
        "Watchers are bounded for each and for all.",
        f"{BOUNDS}::test_watchers_are_bounded",
    ),
    _found(
        "F12",
        "engines.local.claims",
        "a claim that a job has scribbled over raises",
        """\
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(said, int):\
""",
        """\
    except OSError:
        return None
    if isinstance(said, int):\
""",
        "A job's file never keeps the server from starting.",
        f"{IDENTITY}::test_a_claim_that_a_job_scribbles_over_stops_nobody",
    ),
    _found(
        "F13",
        "live.http.sessions",
        "the oldest session of anybody makes way",
        "own = [of for of, one in self._kept.items() if one.token_id == token_id]",
        "own = list(self._kept)",
        "Many logins of one sign nobody else out.",
        f"{PAGES}/test_sessions.py::test_many_logins_of_one_token_sign_nobody_else_out",
    ),
    _found(
        "F14",
        "device.link",
        "whoever listens at the daemon's address is believed",
        "    if whose is not None:",
        "    if whose is None and False:",
        "A stranger's daemon is not obeyed.",
        "tests/device/test_socket.py"
        "::test_a_stranger_who_listens_where_a_daemon_should_is_not_believed",
        "tests/device/test_socket.py::test_a_folder_that_everybody_may_change_holds_no_daemon",
    ),
    _found(
        "F15",
        "live.http.gate",
        "what strangers send is passed on",
        """\
        if caller is None:
            self._deny(None, scope, HTTPStatus.UNAUTHORIZED)\
""",
        """\
        if caller is None and False:
            pass\
""",
        "Nothing of a request is read before its token.",
        f"{BOUNDS}::test_nothing_is_read_of_strangers",
    ),
    _found(
        "F16",
        "engines.local.functions.replica",
        "answers may be of any length",
        "            if len(data) > min(left, bytes_max):",
        "            if len(data) > 1 << 40:",
        "Answers are bounded.",
        f"{LOCAL}/test_replica_answers.py",
    ),
    _found(
        "F17",
        "pages.away",
        "work on uploads may wait without bound",
        "if self._in_hand >= self._in_hand_max:",
        "if self._in_hand >= 10**9:",
        "Uploads that wait are bounded.",
        f"{PAGES}/test_away.py::test_work_that_waits_is_bounded",
    ),
    _found(
        "F18",
        "live.functions.gateway",
        "a user may have any number of functions",
        "elif self._owned_by(user) >= self.settings.functions_per_user:",
        "elif self._owned_by(user) >= 10**9:",
        "Functions of a user are bounded.",
        f"{LIVE}/test_functions.py::test_a_user_has_so_many_functions_and_no_more",
    ),
    _found(
        "F19",
        "live.up",
        "a clock of any year is believed",
        "    if last_s and ahead_s > CLOCK_AHEAD_S:",
        "    if last_s and ahead_s > 1e18:",
        "One start with a wrong clock does no harm for good.",
        f"{LIVE}/test_state_copies.py::test_a_clock_far_ahead_of_the_log_is_refused",
    ),
    _found(
        "F20",
        "live.auth",
        "the last admin is revoked",
        "if {row.id for row in valid if row.role == Role.ADMIN.word} == {token_id}:",
        "if not token_id:",
        "Somebody can always make tokens.",
        f"{LIVE}/test_state_copies.py::test_the_last_admin_cannot_be_revoked",
    ),
    _found(
        "F21",
        "live.up",
        "tokens travel in the open",
        "    elif not (settings.behind_proxy or _is_loopback(settings.host)):",
        "    elif False:",
        "Nothing but loopback is served without encryption.",
        f"{LIVE}/test_operations.py::test_nothing_but_loopback_is_served_in_the_open",
    ),
    _found(
        "F22",
        "live.http.routes.probes",
        "a server is ready that can store nothing",
        "    if the.view.is_ready:",
        "    if the.view:",
        "Ready means that jobs are taken in.",
        f"{LIVE}/test_app.py::test_a_database_that_fails_is_said_to",
    ),
    _found(
        "F23",
        "live.folder",
        "a state folder that others may enter stays open",
        "            state.chmod(mode & PRIVATE)",
        "            pass",
        "The state is its owner's alone.",
        f"{LIVE}/test_state_copies.py::test_a_folder_that_others_may_enter_is_closed",
    ),
    _found(
        "F24",
        "live.http.documents",
        "everybody sees the values of everybody's variables",
        'part["env"] = dict.fromkeys(part["env"], HIDDEN)',
        'part["env"] = dict(part["env"])',
        "Values of variables are for owners and admins.",
        f"{LIVE}/test_app.py::test_values_of_variables_are_for_owners_and_admins",
    ),
    _found(
        "F25",
        "cli.output",
        "what others wrote commands the terminal",
        "        typer.echo(harmless(text), err=True)",
        "        typer.echo(text, err=True)",
        "Nobody's text commands another's terminal.",
        "tests/cli/test_output.py",
    ),
    _found(
        "F26",
        "engines.local.functions.fork_servers",
        "replicas of several users come from one process",
        """\
    user: str
    preload: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
""",
        """\
    user: str = field(compare=False)
    preload: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
""",
        "A handler hurts no other user's functions.",
        f"{LOCAL}/test_replicas.py::test_a_handler_that_kills_its_fork_server_hurts_no_other_user",
    ),
    _found(
        "F27",
        "live.http.sessions",
        "a look at a login link uses it up",
        "        token_id = self._tickets.token_id(ticket)",
        "        token_id = self._tickets.take(ticket)",
        "A preview does not use a link up.",
        f"{PAGES}/test_sessions.py::test_a_ticket_is_not_used_up_by_a_look_at_it",
    ),
    _found(
        "F28",
        "live.auth",
        "two people get tokens of one name",
        "            if not same_account:",
        "            if not name:",
        "A name is one account.",
        f"{LIVE}/test_app.py::test_a_name_has_one_token_unless_it_is_said_to_be_another",
    ),
    _found(
        "F29",
        "migctl.host_lock",
        "two journals change one host at once",
        "            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "One process at a time changes the GPUs of a host.",
        "tests/cli/test_mig_transition.py::test_two_journals_do_not_change_one_host_at_once",
    ),
    _found(
        "F30",
        "model.amounts",
        "amounts may be of any size",
        "_MOST_BYTES: Final = 1 << 52",
        "_MOST_BYTES: Final = 1 << 152",
        "Amounts are bounded where they are read.",
        f"{LIVE}/test_bad_input.py::test_an_impossible_amount_is_refused_where_it_is_read",
    ),
    _found(
        "F31",
        "live.up",
        "what a server before left in its scratch folder stays",
        "    shutil.rmtree(folder, ignore_errors=True)",
        "    folder.exists()",
        "Nothing of a killed server is left lying about.",
        f"{LIVE}/test_operations.py::test_a_scratch_folder_begins_empty",
    ),
)
"""By finding; F5 is among the bugs of shims."""
