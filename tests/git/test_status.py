from untildone.git.status import Status, in_one_line, parse_status, tree_state

HASH = b"a" * 40
CHANGED = b"1 .M N... 100644 100644 100644 %s %s " % (HASH, HASH)
UNMERGED = b"u UU N... 100644 100644 100644 100644 %s %s %s " % (HASH, HASH, HASH)


def answer(*lines: bytes) -> bytes:
    return b"\0".join((b"# branch.oid " + HASH, b"# branch.head main", *lines)) + b"\0"


def test_reads_head_branch_and_every_kind_of_line():
    status = parse_status(answer(CHANGED + b"a file", UNMERGED + b"both", b"? new\nline", b"? nested/"))
    assert (status.head, status.branch) == (HASH.decode(), "main")
    assert status.paths == (b"a file", b"both", b"new\nline", b"nested/")
    assert status.unmerged == (b"both",)
    assert status.nested == (b"nested/",)


def test_a_rename_is_one_path_and_its_old_name_is_not_taken_for_a_line():
    renamed = b"2 R. N... 100644 100644 100644 %s %s R100 to" % (HASH, HASH)
    assert parse_status(answer(renamed, b"1 tricky old name", b"? x")).paths == (b"to", b"x")


def test_no_commit_yet_and_detached():
    status = parse_status(b"# branch.oid (initial)\0# branch.head (detached)\0")
    assert (status.head, status.branch) == (None, None)


def test_ignored_paths_do_not_count():
    assert parse_status(answer(b"? notes", CHANGED + b"code"), ignore=[b"notes"]).paths == (b"code",)


def test_fingerprint_tells_head_paths_and_stamps_apart_but_not_staging():
    def fingerprint(head: str, stamps: dict[bytes, str]) -> str:
        return tree_state(Status(head, "main", tuple(stamps)), stamps).fingerprint

    base = fingerprint("h", {b"a": "1", b"b": "2"})
    assert base == fingerprint("h", {b"b": "2", b"a": "1"})
    others = [("i", {b"a": "1", b"b": "2"}), ("h", {b"a": "1"}), ("h", {b"a": "1", b"b": "3"}), ("h", {})]
    assert len({base, *(fingerprint(*other) for other in others)}) == 5


def test_names_that_are_not_utf8_become_text_every_encoder_takes():
    tree = tree_state(Status("h", "main", (b"bad\xff",)), {b"bad\xff": "1"})
    assert tree.dirty == ("bad\\xff",)
    tree.dirty[0].encode("utf-8")


def test_a_message_shows_a_few_names_and_counts_the_rest():
    assert in_one_line(["a", "b\nc"]) == "a, b\\nc"
    assert in_one_line(map(str, range(7))) == "0, 1, 2, 3, 4 and 2 more"
