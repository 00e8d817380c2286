"""Hand-picked sabotages of lines that security rests on. One entry each: what breaks, file, text, replacement, tests.

The text must stand in the file exactly once. Each of the tests must fail once the text is replaced. To add a sabotage, add an
entry: `python -m tests.mutants NAME` tries those whose name contains NAME.
"""

from __future__ import annotations

from typing import NamedTuple


class Sabotage(NamedTuple):
    """One way to break the code, and the tests that must notice."""

    name: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]


SHARING = "common/secfc/coding/sharing.py"
MASKS = "common/secfc/privacy/masks.py"
CLIENT = "common/secfc/protocol/client"
GUARD = f"{CLIENT}/guard.py"
RULES = f"{CLIENT}/runrules.py"
SEVERAL = "common/secfc/protocol/rounds/several.py"
OPENING = f"{CLIENT}/phases/opening.py"
UNION = f"{CLIENT}/phases/union.py"
FOLLOWING = f"{CLIENT}/phases/following.py"
SHARING_PHASE = f"{CLIENT}/phases/sharing.py"
ROUNDS = f"{CLIENT}/phases/rounds.py"
MASKED = "common/secfc/protocol/rounds/masked.py"
KIT = "common/secfc/pki/kit.py"
SEALED = "common/secfc/privacy/sealed"
VIEWS = "tests/sealed/test_views.py"
TRANSFER = "common/secfc/protocol/transfer.py"
COMPARER = "common/secfc/privacy/sealed/comparer.py"
PRUNING = "tests/protocol/test_pruning.py"
CLAIMS = "tests/protocol/test_privacy_claims.py"
AGREEMENT = "tests/protocol/test_agreement.py"
ENVELOPES = "common/secfc/privacy/envelopes.py"
RELAY = "tests/protocol/test_relay.py"
DECIDING = "common/secfc/web/deciding.py"
JOB_PAGES = "tests/unit/test_job_pages.py"
FAILURES = "tests/sealed/test_failures.py"
CONTEXT_TEST = ("tests/unit/test_masks.py::test_every_component_of_the_context_changes_every_key",)

SABOTAGES = [
    Sabotage(
        "envelope: nothing of the header is bound",
        ENVELOPES,
        'return framed(b"secfc/v1/envelope", numbers, sender',
        'return framed(b"secfc/v1/envelope", b"", sender',
        (f"{RELAY}::test_an_altered_envelope_is_noticed_and_named",),
    ),
    Sabotage(
        "envelope: repetitions are taken",
        ENVELOPES,
        "if envelope.number < due:",
        "if False:",
        (f"{RELAY}::test_a_repeated_envelope_is_noticed_and_taken_once",),
    ),
    Sabotage(
        "envelope: an epoch is trusted that is not fresh",
        ENVELOPES,
        "if hello.yours != self._own:",
        "if False:",
        (f"{RELAY}::test_what_was_sent_before_a_restart_does_not_pass_for_new",),
    ),
    Sabotage(
        "envelope: numbers begin again under the same epoch",
        ENVELOPES,
        "self._own = self._entropy(EPOCH_BYTES)\n        self._hellos = 0",
        "self._hellos = 0",
        (f"{RELAY}::test_whatever_the_server_does_everything_is_taken_at_most_once_and_in_order",),
    ),
    Sabotage(
        "page: a decision needs no token",
        DECIDING,
        'if not hmac.compare_digest(_bare(asked.pop("token")), _bare(self._token)):',
        'if asked.pop("token") is None:',
        (f"{JOB_PAGES}::test_any_other_decision_is_refused_and_does_nothing",),
    ),
    Sabotage(
        "page: other sites may ask for decisions",
        DECIDING,
        "if not _own(headers, scheme):",
        "if False:",
        (f"{JOB_PAGES}::test_any_other_decision_is_refused_and_does_nothing",),
    ),
    Sabotage(
        "all noise segments are equal",
        SHARING,
        "return noise.reshape(lanes, rows, t, self.length).transpose(0, 2, 1, 3)",
        "return np.repeat(noise.reshape(lanes, rows, t, self.length)[:, :, :1], t, axis=2).transpose(0, 2, 1, 3)",
        (
            f"{CLAIMS}::test_t_real_shares_are_uniform_over_all_noise",
            f"{CLAIMS}::test_t_real_shares_have_t_independent_noises",
        ),
    ),
    Sabotage(
        "no noise at all",
        SHARING,
        "out[:, code.segments :] = self._noise(first, rows)",
        "out[:, code.segments :] = 0.0",
        (f"{CLAIMS}::test_t_real_shares_are_uniform_over_all_noise",),
    ),
    Sabotage(
        "every block of rows has the same noise",
        SHARING,
        'b"secfc/v1/noise|%d|" % index',
        'b"secfc/v1/noise|%d|" % 0',
        ("tests/unit/test_sharing.py::test_more_rows_than_a_block",),
    ),
    Sabotage(
        "a shown coin is not noted",
        SHARING_PHASE,
        'out.put("revealed", self.session)',
        "pass",
        ("tests/integration/test_policies.py::test_where_a_coin_was_shown_is_on_disk_when_the_job_is_broken_off",),
    ),
    Sabotage(
        "a noted coin is shown again",
        OPENING,
        'if site.secrets.revealed not in (b"", session):',
        "if False:",
        ("tests/protocol/test_start.py::test_a_coin_serves_in_one_session_only",),
    ),
    Sabotage(
        "masks do not cancel: both ends add",
        MASKS,
        "1 if position < other else -1",
        "1",
        (f"{CLAIMS}::test_the_sum_of_masked_uploads_is_d_prime",),
    ),
    Sabotage(
        "no masks at all",
        MASKED,
        "return body_of(clusters, shape, weights, signed_keys(holding, shape, request))",
        "return body_of(clusters, shape, weights, [])",
        ("tests/unit/test_participant.py::test_another_request_gives_other_masks",),
    ),
    Sabotage(
        "mask keys do not depend on the rows that are asked for",
        MASKED,
        'hashlib.sha256(framed(columns, request.rows)).digest() if request.rows else b""',
        'b""',
        (f"{PRUNING}::test_masks_are_bound_to_the_rows",),
    ),
    Sabotage(
        "mask keys do not say which column the rows are of",
        MASKED,
        "framed(columns, request.rows)",
        "framed(request.rows)",
        (f"{PRUNING}::test_masks_are_bound_to_the_column_that_rows_are_of",),
    ),
    Sabotage(
        "a request may ask for other rows under its number",
        RULES,
        '(asked.columns, asked.rows), (whole, "")',
        "(asked.columns, asked_now[1]), (whole, asked_now[1])",
        (f"{PRUNING}::test_under_one_number_rows_stay_or_all_are_asked_for",),
    ),
    Sabotage(
        "bounds are not moved with the centres",
        "common/secfc/kmeans/bounds.py",
        "np.subtract(part, drift, out=part)",
        "pass",
        ("tests/unit/test_bounds.py::test_less_is_asked_for_and_the_result_is_exact_lloyds",),
    ),
    Sabotage(
        "too few neighbours in the mask graph",
        MASKS,
        "degree = privacy + 1",
        "degree = 2",
        ("tests/unit/test_masks.py::test_the_graph_is_hararys",),
    ),
    Sabotage(
        "mask keys do not depend on the assignment",
        MASKS,
        "            self.assignment,\n",
        "",
        CONTEXT_TEST,
    ),
    Sabotage(
        "mask keys do not depend on the attempt",
        MASKS,
        '            b"%d" % self.attempt,\n',
        "",
        CONTEXT_TEST,
    ),
    Sabotage(
        "mask keys do not depend on the responders",
        MASKS,
        '            b",".join(b"%d" % j for j in self.responders),\n',
        "",
        CONTEXT_TEST,
    ),
    Sabotage(
        "mask keys do not depend on the columns",
        MASKS,
        '            b",".join(b"%d" % h for h in self.columns),\n',
        "",
        CONTEXT_TEST,
    ),
    Sabotage(
        "any responder set is answered",
        FOLLOWING,
        "site.plan.check_responders(request.responders)",
        "pass",
        ("tests/unit/test_participant.py::test_a_wrong_responder_set",),
    ),
    Sabotage(
        "residues are not checked against their prime",
        "common/secfc/coding/field.py",
        "np.uint32(self.ceiling)) >= 0:",
        "np.uint32(self.ceiling)) >= 1 << 62:",
        ("tests/protocol/test_opening.py::test_malformed_answers_change_nothing",),
    ),
    Sabotage(
        "the server may go back to an earlier round",
        GUARD,
        "if now < last or request.number < 1:",
        "if request.number < 1:",
        ("tests/unit/test_participant.py::test_going_back_to_an_earlier_round",),
    ),
    Sabotage(
        "a round may be repeated with another assignment",
        RULES,
        "if request.number == asked.number and request.assignment_digest.hex() != asked.assignment:",
        "if False:",
        ("tests/protocol/test_misbehaving_server.py::test_a_round_repeated_with_another_assignment",),
    ),
    Sabotage(
        "an assignment may leave rows out",
        RULES,
        "if not leaves_out and (labels == UNASSIGNED).any():",
        "if False:",
        ("tests/unit/test_guard.py::test_a_partition_leaves_no_row_out",),
    ),
    Sabotage(
        "a seed need not have been a candidate",
        RULES,
        "if seeds[:settled] != before or (candidates and seeds[settled] not in candidates):",
        "if seeds[:settled] != before:",
        ("tests/unit/test_guard.py::test_a_seed_is_one_of_the_candidates_asked_for_before",),
    ),
    Sabotage(
        "the policy's largest number of requests is ignored",
        GUARD,
        "if rules.max_requests is not None and requests > rules.max_requests:",
        "if False:",
        ("tests/unit/test_guard.py::test_the_policy_limits_requests",),
    ),
    Sabotage(
        "the policy's largest number of directions is ignored",
        GUARD,
        "if most is not None and now.count > most:",
        "if False:",
        ("tests/unit/test_guard.py::test_the_policy_limits_directions",),
    ),
    Sabotage(
        "the policy's smallest cluster is ignored",
        GUARD,
        "if smallest < least:",
        "if False:",
        ("tests/unit/test_guard.py::test_the_policy_has_a_size_floor_for_every_cluster_not_only_those_asked_for",),
    ),
    Sabotage(
        "coins are not compared with their commitments",
        "common/secfc/protocol/start.py",
        "if len(coin) != COIN_BYTES or not hmac.compare_digest(commitment(member.name, coin), member.commitment):",
        "if len(coin) != COIN_BYTES:",
        ("tests/protocol/test_start.py::test_a_server_that_alters_a_coin",),
    ),
    Sabotage(
        "the first assignment is not compared with the coins",
        "common/secfc/protocol/start.py",
        "if version > 1 and not choosing:",
        "if True:",
        ("tests/protocol/test_start.py::test_another_first_assignment",),
    ),
    Sabotage(
        "signatures are not verified",
        KIT,
        "certificates.p256(certificate).verify(signature, message, certificates.ECDSA)",
        "p256(certificate)",
        (
            "tests/unit/test_kit.py::test_signature",
            "tests/protocol/test_keys.py::test_a_server_that_swaps_what_a_client_signed",
        ),
    ),
    Sabotage(
        "anybody's certificate signs for anybody",
        KIT,
        "if certificates.identity(certificate) != federations.identity(federation_name, party_name):",
        "if False:",
        ("tests/protocol/test_keys.py::test_a_swapped_key_signed_by_another_party_of_the_federation",),
    ),
    Sabotage(
        "introductions in the roster are not verified",
        OPENING,
        "        site.verify(member)\n",
        "        pass\n",
        ("tests/unit/test_participant.py::test_an_introduction_that_is_not_signed",),
    ),
    Sabotage(
        "liars are never noticed",
        "common/secfc/privacy/checking.py",
        "odd = np.flatnonzero(checks.any(axis=0))",
        "odd = np.flatnonzero(checks.all(axis=0) & False)",
        ("tests/unit/test_checking.py::test_equal_lies_by_several_do_not_cancel",),
    ),
    Sabotage(
        "key files that others can read are taken",
        KIT,
        "if mode & 0o077:",
        "if False:",
        ("tests/unit/test_kit.py::test_open_key_is_refused_with_the_command",),
    ),
    Sabotage(
        "others can read a client's secrets",
        "common/secfc/atomicfile.py",
        "def write(path: Path, parts: Iterable[bytes | memoryview], mode: int = 0o600)",
        "def write(path: Path, parts: Iterable[bytes | memoryview], mode: int = 0o666)",
        ("tests/unit/test_store.py::test_only_the_owner_may_read_them",),
    ),
    Sabotage(
        "rows of colluders count for the floor on centres",
        "common/secfc/privacy/centers.py",
        "most = max(privacy, 1)",
        "most = 0",
        ("tests/protocol/test_opening.py::test_one_row_among_a_colluders_is_not_opened",),
    ),
    Sabotage(
        "only one site's rows are left out of the floor on centres",
        "common/secfc/privacy/centers.py",
        "most = max(privacy, 1)",
        "most = 1",
        ("tests/protocol/test_opening.py::test_rows_of_the_t_largest_sites_do_not_count",),
    ),
    Sabotage(
        "the federation's floor on centres is not enforced by receivers",
        "common/secfc/privacy/gathering.py",
        "if not self._floor <= smallest <= 1 << 31:",
        "if False:",
        ("tests/protocol/test_opening.py::test_the_federations_floor_holds_whatever_a_client_says",),
    ),
    Sabotage(
        "shares of another session are taken",
        f"{CLIENT}/participant.py",
        "if parcel.session != self.session:",
        "if False:",
        ("tests/protocol/test_keys.py::test_replayed_shares_of_another_session_are_refused",),
    ),
    Sabotage(
        "keys of a pair are bound to nobody",
        "common/secfc/privacy/keys.py",
        'session, b"pair", *bound)',
        'session, b"pair")',
        ("tests/unit/test_keys.py::test_an_equivalent_public_key_gives_another_pair_key",),
    ),
    Sabotage(
        "nobody checks that others have the keys they show",
        OPENING,
        "keys.check_proofs(event.proofs, met.pairs, met.session, site.federation.roster, site.index)",
        "pass",
        (f"{AGREEMENT}::test_a_client_with_an_equivalent_of_anothers_key_gets_no_share",),
    ),
    Sabotage(
        "signatures under the session are not checked",
        OPENING,
        "site.verify(messages.Agreement(member.name, met.session, member.certificate, signature))",
        "pass",
        (f"{AGREEMENT}::test_every_signature_must_be_there",),
    ),
    Sabotage(
        "the owner's rule about keeping its shares is ignored",
        SHARING_PHASE,
        "return site.keeps and met.members[owner].keeps",
        "return site.keeps",
        (f"{AGREEMENT}::test_shares_outlive_a_job_only_where_owner_and_holder_want_that",),
    ),
    Sabotage(
        "a job may begin with any request",
        GUARD,
        "if not self.began and request.number > 1:",
        "if False:",
        (f"{AGREEMENT}::test_a_server_that_begins_after_the_start",),
    ),
    Sabotage(
        "what earlier jobs gave away is not counted",
        GUARD,
        "self._before, rules = before, self.policy",
        "self._before, rules = Tally(), self.policy",
        ("tests/unit/test_budget.py::test_a_server_that_begins_again_and_again_never_knows_more_than_the_limit",),
    ),
    Sabotage(
        "shares that do not fit together are taken",
        "common/secfc/privacy/verification.py",
        "if not found.any():",
        "if True:",
        ("tests/unit/test_verification.py::test_a_dealer_off_its_polynomial_for_many_is_noticed",),
    ),
    Sabotage(
        "a union that is not the clients' is taken",
        "common/secfc/privacy/confirming.py",
        "return bool((total == FIELD.from_ints(np.array([[rows, 0]]))).all())",
        "return True",
        ("tests/protocol/test_confirming.py::test_an_added_id_is_noticed_by_all",),
    ),
    Sabotage(
        "a client may choose what it confirms after it has seen the others' numbers",
        f"{CLIENT}/vows.py",
        "        said = confirming.commitment(j, self._session, name, words)\n",
        "        said = self._committed.get(j) or confirming.commitment(j, self._session, name, words)\n",
        ("tests/protocol/test_confirming.py::test_who_speaks_last_cannot_make_the_owner_break_off_alone",),
    ),
    Sabotage(
        "a restarted client lets others commit themselves again",
        UNION,
        'if desk.past.committed not in ("", found):',
        "if False:",
        (
            "tests/protocol/test_confirming.py::"
            "test_a_restarted_client_takes_no_other_commitments_once_its_own_is_opened",
        ),
    ),
    Sabotage(
        "an old roster comes back into force",
        "common/secfc/pki/pins.py",
        "_check_newer(found, self._roster, str(source.path))",
        "pass",
        ("tests/unit/test_revocation.py::test_versions_never_go_back_while_running",),
    ),
    Sabotage(
        "something leaves before what it follows from is on disk",
        "common/secfc/net/driver.py",
        "await asyncio.to_thread(self._write, effects)",
        "self._release(effects)",
        ("tests/unit/test_driver.py::test_what_is_kept_is_on_disk_before_anything_leaves",),
    ),
    Sabotage(
        "the server takes what belongs to another session",
        "common/secfc/protocol/server/coordinator.py",
        "if self._phase.met is not None and parcel.session != self._phase.met.session:",
        "if False:",
        ("tests/integration/test_refused.py::test_wrong_uploads_are_refused",),
    ),
    Sabotage(
        "the server delivers to a client as another client would",
        f"{CLIENT}/participant.py",
        "self.site.peer(given.sender)  # the server has another way: what it says is told",
        "pass",
        ("tests/integration/test_refused.py::test_shares_come_from_the_other_clients_only",),
    ),
    Sabotage(
        "a client's part of the check of all shares is another after a restart",
        ROUNDS,
        'if desk.past.verified not in ("", digest):',
        "if False:",
        ("tests/protocol/test_shares_checked.py",),
    ),
    Sabotage(
        "a start that the coins do not decide is taken",
        FOLLOWING,
        "start.check_assignment(self._job.seeding, coins.of_run(run), self._job.runs[run], version, labels)",
        "pass",
        ("tests/protocol/test_start.py::test_another_first_assignment",),
    ),
    Sabotage(
        "a run that was left out may come back",
        RULES,
        "if asked.over:\n            raise",
        "if False:\n            raise",
        ("tests/protocol/test_runs.py::test_a_run_that_was_left_out_does_not_come_back",),
    ),
    Sabotage(
        "a job may begin with some of its runs",
        GUARD,
        "if now[0] in (1, last[0]) and set(request.by_run) != left:",
        "if False:",
        ("tests/protocol/test_runs.py::test_the_first_request_is_about_all_runs",),
    ),
    Sabotage(
        "all runs have one session, so their masks are the same",
        SEVERAL,
        'b"%d" % run)).digest() if run else session',
        'b"")).digest() if run else session',
        ("tests/protocol/test_runs.py::test_runs_have_sessions_and_coins_of_their_own",),
    ),
    Sabotage(
        "what a run has found in an attempt that came to nothing is kept",
        SEVERAL.replace(".py", "_server.py"),
        "if self._last is not None and self._last.half_done:",
        "if False:",
        ("tests/protocol/test_runs.py::test_an_attempt_that_was_half_done_is_forgotten_by_all",),
    ),
    Sabotage(
        "a piece may leave bytes out",
        TRANSFER,
        "if piece.offset > sink.received:",
        "if False:",
        ("tests/unit/test_transfer.py::test_what_does_not_fit_changes_nothing",),
    ),
    Sabotage(
        "a refused piece changes what is due",
        TRANSFER,
        "if (self._data and total != self._total) or total > self._most:",
        "before, self._total = self._total, total\n        if (self._data and total != before) or total > self._most:",
        (
            "tests/unit/test_transfer.py::test_what_does_not_fit_changes_nothing",
            "tests/protocol/test_opening.py::test_pieces_out_of_place_and_answers_too_long_change_nothing",
        ),
    ),
    Sabotage(
        "the server gathers an answer about the centres again and again",
        "common/secfc/protocol/server/phases/finished.py",
        "if self.job.index(sender) in self._centers.answered:",
        "if False:",
        (
            "tests/protocol/test_opening.py::"
            "test_what_comes_after_a_whole_answer_takes_no_room_and_spoils_nothing[server]",
        ),
    ),
    Sabotage(
        "what does not get through at once is given up",
        "common/secfc/protocol/outbox.py",
        "if isinstance(error, Unavailable):",
        "if False:",
        ("tests/unit/test_outbox.py::test_pauses_double_up_to_a_limit_and_are_scattered",),
    ),
    Sabotage(
        "shares that nobody takes are tried for ever",
        FOLLOWING,
        "if self.published.tossed is None:  # as long as",
        "if False:  # as long as",
        ("tests/protocol/test_machines.py::test_whoever_takes_no_shares_for_too_long_is_named_by_their_sender",),
    ),
    Sabotage(
        "sealed: no zero-share covers a member's message",
        COMPARER,
        "return plus, _EMPTY if self._minus is None else self._minus.read(count)",
        "return _EMPTY, _EMPTY",
        ("tests/sealed/test_coins.py::test_zero_shares_cancel_and_cover_every_message",),
    ),
    Sabotage(
        "sealed: a factor may be zero",
        COMPARER,
        'SmallStream(self._key("factor"), nonzero=True)',
        'SmallStream(self._key("factor"))',
        ("tests/sealed/test_coins.py::test_no_factor_is_zero_and_all_members_use_the_same[factors]",),
    ),
    Sabotage(
        "sealed: places are not turned",
        COMPARER,
        'turn = below(self._key(f"turn/{number}"), self.terms.places(part.lanes), len(part))',
        "turn = np.zeros(len(part), dtype=np.uint8)",
        (
            "tests/sealed/test_coins.py::test_places_are_turned_by_any_number_and_by_all_members_alike",
            f"{VIEWS}::test_what_the_server_adds_up_is_a_coin",
        ),
    ),
    Sabotage(
        "sealed: an epoch is not written down",
        "common/secfc/protocol/rounds/sealed_client.py",
        'return b"%s %d %d %d" % (self.holding.session.hex().encode(), last, self._opening, self._openings)',
        'return b""',
        (
            "tests/protocol/test_resume.py::test_a_member_writes_an_epoch_down_before_it_speaks_and_never_speaks_in_it_again",
        ),
    ),
    Sabotage(
        "sealed: a step leaves before the request is admitted",
        ROUNDS,
        'given.name[0] == "step" and self._due:',
        'given.name[0] == "step" and False:',
        (f"{FAILURES}::test_no_step_leaves_before_what_it_gives_away_is_on_disk",),
    ),
    Sabotage(
        "sealed: every attempt has a blur of its own",
        f"{SEALED}/member.py",
        "self.question.blur_context() if isinstance(self.question, Inertia) else self._name",
        "self._name",
        (f"{FAILURES}::test_all_attempts_at_the_inertia_in_an_epoch_show_one_number",),
    ),
    Sabotage(
        "sealed: the inertia is opened in any number of epochs",
        "common/secfc/protocol/rounds/sealed_client.py",
        "if self._openings == MOST_OPENINGS:",
        "if False:",
        (f"{FAILURES}::test_a_client_opens_the_inertia_in_so_many_epochs_and_no_more",),
    ),
    Sabotage(
        "sealed: a draw takes the points that the server likes",
        "common/secfc/protocol/rounds/sealed_client.py",
        "due.points not in ((), self._points(coins, due)):",
        "False:",
        ("tests/sealed/test_draws.py::test_a_draw_with_other_points_than_the_coins_is_refused",),
    ),
    Sabotage(
        "sealed: unread messages are not bounded",
        "common/secfc/protocol/rounds/unread.py",
        "if self._came - self._read + size > self._most:",
        "if False:",
        ("tests/sealed/test_unread.py::test_pieces_of_many_messages_share_one_bound",),
    ),
    Sabotage(
        "the streams of sealed rounds are bound to nothing but the epoch",
        "common/secfc/privacy/sealed/context.py",
        'framed(b"secfc/v1/sealed/context", *parts)',
        'framed(b"secfc/v1/sealed/context", *parts[:4])',
        (f"{FAILURES}::test_every_purpose_of_a_stream_is_watched",),
    ),
    Sabotage(
        "a member of the committee takes other data under one name",
        "common/secfc/privacy/sealed/member.py",
        "if known != found:",
        "if False:",
        (f"{FAILURES}::test_a_server_that_deals_other_data_under_one_name_is_refused",),
    ),
    Sabotage(
        "a member of the committee takes part in an epoch of an earlier process",
        "common/secfc/protocol/rounds/sealed_client.py",
        "epoch.check_number(self._last)",
        "pass",
        (f"{FAILURES}::test_a_member_refuses_an_epoch_that_is_not_above_its_last",),
    ),
    Sabotage(
        "members add no zero-shares",
        COMPARER,
        'plus = self._key(f"{purpose}/{self._link}") if self._link else None',
        "return None, None",
        (f"{VIEWS}::test_every_member_adds_a_zero_share", f"{VIEWS}::test_all_messages_of_a_committee_of_three"),
    ),
    Sabotage(
        "members add no zero-shares to comparisons",
        COMPARER,
        '_Zeros(*self._chain("zero"))',
        "_Zeros(None, None)",
        (f"{VIEWS}::test_every_member_adds_a_zero_share",),
    ),
    Sabotage(
        "members add no zero-shares to counts",
        COMPARER,
        '_Zeros(*self._chain("count-zero")).read(tests.count)',
        "(_EMPTY, _EMPTY)",
        (f"{VIEWS}::test_every_member_adds_a_zero_share",),
    ),
    Sabotage(
        "members add no zero-shares to selections",
        COMPARER,
        'plus, minus = self._chain("select-zero")',
        "plus, minus = None, None",
        (f"{VIEWS}::test_every_member_adds_a_zero_share",),
    ),
    Sabotage(
        "all comparisons have one direction, so the server sees who is nearer",
        COMPARER,
        'direction = coins(self._key("dir"), sum(len(part) for part in parts))',
        "direction = np.zeros(sum(len(part) for part in parts), dtype=np.uint8)",
        (f"{VIEWS}::test_what_the_server_adds_up_is_a_coin",),
    ),
    Sabotage(
        "digits have no factors",
        COMPARER,
        "share, factor, zero = shares.read(n * width), factors.read(n * places), zeros.read(n * places)",
        "share, factor, zero = shares.read(n * width), np.ones(n * places, np.uint8), zeros.read(n * places)",
        (f"{VIEWS}::test_what_the_server_adds_up_is_a_coin",),
    ),
    Sabotage(
        "groups are not turned, so the server sees the winners of all",
        COMPARER,
        'return below(self._key("group-turn"), size, count)',
        "return np.zeros(count, dtype=np.uint8)",
        (f"{VIEWS}::test_turns_and_blurs_are_drawn",),
    ),
    Sabotage(
        "inertias are opened without a blur",
        COMPARER,
        'return int.from_bytes(data, "big") >> -bits % 8',
        "return 0",
        (f"{VIEWS}::test_turns_and_blurs_are_drawn",),
    ),
    Sabotage(
        "the server deals residues without noise",
        f"{SEALED}/referee.py",
        'add_residues(flat, self._negative("select"), field)',
        "add_residues(flat, [], field)",
        (f"{VIEWS}::test_dealt_residues_are_what_the_streams_leave",),
    ),
    Sabotage(
        "pads do not depend on what is asked",
        f"{SEALED}/context.py",
        'return purse.key("pad", context.digest, 0, 0, 0)',
        'return purse.key("pad", b"", 0, 0, 0)',
        ("tests/sealed/test_streams.py::test_every_part_of_the_context_changes_every_stream",),
    ),
    Sabotage(
        "a committee that the policy does not allow is answered",
        GUARD,
        "if allowed and others:",
        "if False:",
        ("tests/sealed/test_policy.py::test_a_committee_that_a_site_does_not_allow_ends_the_job",),
    ),
    Sabotage(
        "assignments of earlier jobs are not counted",
        GUARD,
        "given = (self._before + self._earlier + self._session_tally(asked)).assignments",
        "given = self._session_tally(asked).assignments",
        (
            "tests/unit/test_guard.py::test_the_policy_limits_assignments_over_sessions_and_jobs",
            "tests/unit/test_budget.py::test_assignments_are_limited_over_all_jobs_too",
        ),
    ),
    Sabotage(
        "a server may open one inertia after the other",
        RULES,
        "if request.number > asked.number and asked.inertia:",
        "if False:",
        ("tests/unit/test_guard.py::test_nothing_is_asked_once_the_inertia_is_opened",),
    ),
    Sabotage(
        "answers leave without a line in the audit file",
        "common/secfc/net/driver.py",
        "if effects.audit and self._ledger is not None:",
        "if False:",
        ("tests/unit/test_driver.py::test_the_audit_file_comes_before_what_it_tells_of",),
    ),
    Sabotage(
        "an audit file that was written again from some line on is in order",
        "common/secfc/protocol/audit.py",
        'if fields["before"] != head.digest:',
        "if False:",
        ("tests/unit/test_audit.py::test_a_line_that_was_made_again_does_not_fit",),
    ),
    Sabotage(
        "keys and nonce of one job serve the next one that uses its shares",
        "secfc_client/shelf.py",
        "store.finish(keep=True)",
        "pass",
        ("tests/unit/test_shelf.py::test_the_next_job_has_the_seed_and_what_may_last_and_nothing_else",),
    ),
    Sabotage(
        "rows of others' choice are assigned to clusters by any rule",
        "common/secfc/agreement/allowing.py",
        '            ("kind", wanted.kind, self.kinds),\n',
        "",
        ("tests/unit/test_submitted_assigning.py::test_a_rule_allows_no_rows_of_others_choice_unless_it_says_so",),
    ),
]
