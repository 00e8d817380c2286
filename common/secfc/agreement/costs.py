"""What the largest job that a plan allows costs each party: bytes, memory, messages and multiplications."""

from __future__ import annotations

from collections.abc import Sequence

from secfc.agreement.plan import Plan
from secfc.coding.field import Field, Layout
from secfc.privacy import checking
from secfc.privacy.identifiers import ID_BYTES
from secfc.privacy.sealed.cost import Traffic, first_round, seeding, seeding_memory, upload_bytes, usual_round
from secfc.privacy.union import COLUMNS, TableShape, union_code

CLIENT_BASE, SERVER_BASE = 290 << 20, 230 << 20  # of a process with next to no rows, measured on Linux x86-64
STREAM_BUFFER = 16 << 20  # what gRPC holds of a stream whose sender is quicker than we are


def of(plan: Plan, runs: Sequence[int] = (), holders: int = 0) -> dict[str, int]:
    """What the largest job allowed costs, if rows are dealt evenly: bytes, and multiplications in the field.

    `holders`: clients over which columns are split, if they are; each may have max_rows rows.
    `runs`: the clusters of every run that goes side by side with the others, in requests about all of them; none given: one.
    `…_memory_bytes` are the arrays of the rounds; `…_process_bytes` the peak of the whole process, with interpreter,
    libraries, the client's own rows, and shares and uploads on their way.
    """
    w, lanes, s, code = plan.wishes, plan.field.lanes, plan.length, plan.code
    owned = w.max_rows if plan.private else -(-w.max_rows // w.clients)
    each = [plan.of_run(k) for k in runs or (w.clusters,)]
    uploads = [Layout.uniform(plan.field, w.max_rows, one.wishes.clusters) for one in each]
    words, residues = (sum(getattr(upload, name) for upload in uploads) for name in ("words", "residues"))
    beyond = (one.slots - one.wishes.clusters for one in each)  # candidates
    spare = sum(Layout.uniform(plan.field, w.max_rows, columns).residues for columns in beyond)
    client = 8 * w.max_rows * (s + 2) * lanes + 8 * words
    server = 4 * (residues + spare) + (4 if plan.masked else 8) * residues + 8 * w.max_rows * len(each)
    asked = plan.asked()[1]
    if w.liars:  # three random factors per row, and three sums of every column of every upload
        columns = sum(upload.row_residues for upload in uploads)
        server += 8 * checking.COMBINATIONS * (w.max_rows * len(each) + asked * columns)
    if w.uploads == "sealed":
        more = [_sealed_memory(one) for one in each]
        client, server = client + sum(one["client"] for one in more), server + sum(one["server"] for one in more)
    if w.prune:  # lower bounds at the server, and at both which pairs are asked for (`bounds`, `pairs`)
        pairs = w.max_rows * sum(one.wishes.clusters for one in each)
        client, server = client + 14 * pairs, server + 18 * pairs
    # a client's own values: the file's, as floats, as integers
    rows = (w.max_rows if holders else -(-w.max_rows // w.clients)) * w.features
    union = _union_cost(plan, holders)
    return {
        "union_bytes_per_client": union["sent_by_client"],
        "union_bytes_server": union["sent_by_server"],
        "sharing_bytes_per_client": 8 * plan.share_layout(owned).words * (w.clients - 1),
        "seeding_bytes_per_client": sum(map(_seeding_bytes, each)),
        "round_bytes_per_client": 8 * words,
        "round_bytes_server": 8 * words * asked,
        "client_memory_bytes": client,
        "server_memory_bytes": server,
        "client_process_bytes": CLIENT_BASE
        + max(client, union["client_memory"])
        + 24 * rows
        + 8 * plan.share_layout(w.max_rows).words
        + (w.clients - 1) * min(8 * plan.share_layout(owned).words, STREAM_BUFFER)
        + min(8 * words, STREAM_BUFFER),
        "server_process_bytes": SERVER_BASE
        + max(server, union["server_memory"])
        + asked * min(8 * words, STREAM_BUFFER),
        "sharing_multiplications_per_client": owned * w.clients * (code.segments + code.privacy) * s * lanes,
        "round_multiplications_per_client": w.max_rows * (s + 2) * sum(one.wishes.clusters for one in each) * lanes,
        "round_multiplications_server": (0 if plan.masked else plan.responders * residues)
        + (checking.COMBINATIONS * asked * residues if w.liars else 0)
        + residues * (lanes - 1) // 2,
    }


def sealed(plan: Plan) -> dict[str, dict[str, int]]:
    """What a run's first sealed round, one in which 5 % of the rows move, and its seeding if that is k-means++ make the
    parties send and take.

    Bytes of uploads and comparing for the largest job allowed, in clusters of m/k rows. Members take turns in being dealt
    to; theirs are the average.
    """
    terms = plan.sealed(plan.wishes.max_rows)
    upload = upload_bytes(terms)
    kinds = {"first_round": first_round(terms), "usual_round": usual_round(terms)}
    out = {name: _parties(plan, found, upload) for name, found in kinds.items()}
    if plan.wishes.seeding != "random":
        seeds = seeding(terms, plan.candidates)
        out["seeding"] = _parties(plan, seeds, _seeding_bytes(plan), plan.wishes.clusters)
    return out


def sealed_runs(plan: Plan, runs: Sequence[int] = ()) -> dict[str, dict[str, int]]:
    """The same of all runs side by side; uploads of all to one request travel as one message."""
    each = [sealed(plan.of_run(k)) for k in runs or (plan.wishes.clusters,)]
    total = {name: {what: sum(one[name][what] for one in each) for what in found} for name, found in each[0].items()}
    for name, found in total.items():
        requests = max(one[name]["client_messages"] for one in each)
        found["member_messages"] -= found["client_messages"] - requests
        found["client_messages"] = requests
    return total


def _parties(plan: Plan, found: Traffic, upload: int, requests: int = 1) -> dict[str, int]:
    members = plan.wishes.privacy + 1
    answers = members * found.answered + found.single
    said = members * found.member_messages + found.single_messages
    return {
        "member_sent": upload + -(-answers // members),
        "member_received": -(-(found.dealt + found.told) // members),
        "member_messages": 2 * requests + -(-said // members),  # with the upload, and that it is through
        "client_sent": upload,
        "client_messages": requests,
        "server_sent": found.dealt + found.told,
        "server_received": plan.responders * upload + answers,
        "server_messages": found.server_messages,
    }


def _sealed_memory(plan: Plan) -> dict[str, int]:
    """Beyond a masked round's: ρ of all columns at the server, and on both ends at most what is said in a first round, or
    what choosing a seed takes."""
    first = sealed(plan)["first_round"]
    upload = first["client_sent"]
    kept = 4 * plan.wishes.max_rows * plan.wishes.clusters * plan.field.lanes
    server = first["server_sent"] + first["server_received"] - plan.responders * upload
    client = first["member_sent"] - upload + first["member_received"]
    seeds = (0, 0)
    if plan.wishes.seeding != "random":
        seeds = seeding_memory(plan.sealed(plan.wishes.max_rows), plan.candidates)
    return {"client": max(client, seeds[0]), "server": kept + max(server, seeds[1])}


def _seeding_bytes(plan: Plan) -> int:
    """What a responder of every request uploads while seeding: the columns of all candidates."""
    w = plan.wishes
    if w.seeding == "random":
        return 0
    lanes = plan.field.lanes_for(plan.unit)
    if w.uploads == "sealed":
        lanes = plan.sealed(w.max_rows).seed_lanes()
    ring = Field(plan.field.primes[:lanes])
    first, others = (Layout.uniform(ring, w.max_rows, columns).words for columns in (1, plan.candidates))
    return 8 * (first + (w.clusters - 1) * others)


def _union_cost(plan: Plan, holders: int) -> dict[str, int]:
    """Bytes of one table for max_rows IDs, or as many of each holder. A client sends a share to every other and the sum to
    the server, which sends all IDs to everybody; none of it is there any more when the rounds begin."""
    w = plan.wishes
    if not plan.private:
        return dict.fromkeys(("sent_by_client", "sent_by_server", "client_memory", "server_memory"), 0)
    table = TableShape.of(union_code(w.clients, w.privacy), max(holders, 1) * w.max_rows, b"")
    share, cell = (
        8 * table.words,
        COLUMNS * table.code.field.lanes,
    )  # cells are of 32 bits, opened ones of 64 before
    ids = ID_BYTES * w.max_rows
    return {
        "sent_by_client": share * w.clients,
        "sent_by_server": ids * w.clients,
        "client_memory": 4 * cell * table.cells + 8 * cell * table.rows + share * w.clients + ids,
        "server_memory": (4 + 8) * cell * table.cells + share * w.clients + 2 * ids,
    }
