"""What an e-mail's content may say, and that reading it takes no longer than its length warrants."""

import pytest

from channels.bad_content import BadContent
from channels.providers._common.email_content import Mailbox, mailbox, read_content, receiver

MIB = 1 << 20


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "address",
    [
        f"a{' ' * MIB}b",
        f"{' ' * MIB}<a@example.com",
        f"a{' ' * MIB}<a@example.com>",
        "<" * MIB,
        "a@" * MIB,
        f"a@{'b.' * MIB}c",
        '"' + "\\" * MIB + '" <a@example.com>',
    ],
)
def test_an_address_of_a_mebibyte_is_refused_at_once(address: str) -> None:
    for key in ("cc", "bcc", "reply_to"):
        with pytest.raises(BadContent, match=r"^bad_address: longer than 2,054 characters"):
            read_content({"subject": "s", "text": "t", key: [address]})
    with pytest.raises(BadContent, match=r"^bad_receiver: an address has at most 254 characters"):
        receiver(address)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a@example.com", Mailbox("", "a@example.com")),
        ("  a@example.com ", Mailbox("", "a@example.com")),
        ("<a@example.com>", Mailbox("", "a@example.com")),
        ("Ann  <a@example.com>", Mailbox("Ann", "a@example.com")),
        ("Ann<a@example.com>", Mailbox("Ann", "a@example.com")),
        ('"Smith, Ann" <a@example.com>', Mailbox("Smith, Ann", "a@example.com")),
        ('"a \\"b\\"" <a@example.com>', Mailbox('a "b"', "a@example.com")),
        ("鸿雁 <a@例子.com>", Mailbox("鸿雁", "a@xn--fsqu00a.com")),
    ],
)
def test_an_address_with_and_without_its_name_is_read(text: str, found: Mailbox) -> None:
    assert mailbox(text) == found


@pytest.mark.parametrize(
    "text", ["", "Ann", "Ann <>", "a > <a@example.com>", "<<a@example.com>>", "a@b@example.com <c"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadContent, match=r"^bad_address: "):
        mailbox(text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"reply_to": ["a@example.com"] * 51}, "bad_content: reply_to has more than 50"),
        ({"headers": {f"X-{i}": "v" for i in range(101)}}, "bad_header: more than 100"),
        (
            {"attachments": [{"filename": "a", "content": ""}] * 101},
            "bad_attachment: more than 100",
        ),
    ],
)
def test_lists_that_would_make_a_mail_of_parts_alone_are_refused(
    content: dict[str, object], said: str
) -> None:
    with pytest.raises(BadContent) as refused:
        read_content({"subject": "s", "text": "t", **content})
    assert str(refused.value).startswith(said)


def attached(filename: str, **more: str) -> str:
    """Returns the type under which a file goes out."""
    one = {"filename": filename, "content": "aGk=", **more}
    return (
        read_content({"subject": "s", "text": "t", "attachments": [one]})
        .content.attachments[0]
        .mime
    )


@pytest.mark.parametrize(
    ("filename", "mime"),
    [
        ("report.csv", "text/csv"),
        ("report.csv.gz", "application/gzip"),
        ("a.tar.gz", "application/gzip"),
        ("a.tgz", "application/gzip"),
        ("page.html.bz2", "application/octet-stream"),
        ("a.tar.xz", "application/octet-stream"),
        ("x.eml", "application/octet-stream"),
        ("x.mht", "application/octet-stream"),
        ("data:multipart/mixed,x", "application/octet-stream"),
        (f"data:text/{'x' * 200},x", "application/octet-stream"),
        ("no ending", "application/octet-stream"),
    ],
)
def test_a_files_name_gives_a_type_that_its_bytes_have(filename: str, mime: str) -> None:
    assert attached(filename) == mime


def test_a_given_type_goes_before_the_name() -> None:
    assert attached("report.csv.gz", type="Text/CSV") == "text/csv"
    longest = f"{'a' * 127}/{'b' * 127}"
    assert attached("a", type=longest) == longest


@pytest.mark.parametrize(
    "given", ["application/" + "x" * 128, "x" * 128 + "/x", "a/" + "x" * 3_000]
)
def test_a_given_type_that_is_too_long_is_refused(given: str) -> None:
    with pytest.raises(BadContent) as refused:
        attached("a", type=given)
    assert str(refused.value) == (
        "bad_attachment: attachments[0].type has more than 127 characters before or after its slash"
    )


@pytest.mark.parametrize(
    "given", ["message/rfc822", "multipart/mixed", "text", "a/b/c", "a/b; c=d"]
)
def test_a_given_type_that_is_none_of_a_file_is_refused(given: str) -> None:
    with pytest.raises(BadContent, match=r"attachments\[0\]\.type is no type of a file"):
        attached("x.eml", type=given)


@pytest.mark.parametrize(
    "content",
    [
        {"cc": ["geheim geheim"]},
        {"cc": ["geheim@geheim@geheim"]},
        {"cc": ["a@gehe(im"]},
        {"headers": {"geheim geheim": "v"}},
        {"geheim": 1},
        {"to": "geheim"},
        {"attachments": [{"filename": "geheim", "content": "", "type": "geheim"}]},
        {
            "text": "t",
            "html": "h",
            "attachments": [{"filename": "a", "content": "", "cid": "ge heim"}],
        },
    ],
)
def test_a_refusal_names_the_field_and_not_the_value(content: dict[str, object]) -> None:
    with pytest.raises(BadContent) as refused:
        read_content({"subject": "s", "text": "t", **content})
    field = "unknown field `geheim`"
    assert "geheim" not in str(refused.value).replace(field, "")


INTERNAL = (
    "ops@corp.local",
    "ops@CORP.Local",
    "ops@host.test",
    "root@localhost",
    "u@host.home.arpa",
    "ops@[192.0.2.1]",
    "ops@[IPv6:2001:db8::1]",
)


@pytest.mark.parametrize("address", INTERNAL)
def test_an_address_of_an_own_network_is_for_own_servers_alone(address: str) -> None:
    for read_one, code in ((mailbox, "bad_address"), (receiver, "bad_receiver")):
        with pytest.raises(BadContent, match=f"^{code}: "):
            read_one(address)
        found = read_one(address, internal=True)
        assert found.address.lower() == address.lower()
    with pytest.raises(BadContent, match=r"^bad_address: "):
        read_content({"subject": "s", "text": "t", "cc": [address]})
    read_content({"subject": "s", "text": "t", "cc": [address]}, internal=True)


def test_an_internal_domain_is_written_in_ascii_too() -> None:
    assert receiver("ops@例子.local", internal=True).address == "ops@xn--fsqu00a.local"
    assert mailbox("Ops <ops@corp.local>", internal=True) == Mailbox("Ops", "ops@corp.local")
    assert receiver("ops@corp.lan", internal=True).address == "ops@corp.lan"


@pytest.mark.parametrize(
    "address",
    [
        "ann@example",
        "root@mailhost",
        "ops@[192.0.2.999]",
        "ops@[mailhost]",
        "ops@.local",
        "ops@-.local",
        "ops@corp..local",
        "ops@corp.local.",
        "ops@a b.local",
        "ops@corp.local>",
        "ops@corp.local\r\nDATA",
        "o>ps@corp.local",
        "安@corp.local",
        "ops@corp.invalid",
        "ops@corp.onion",
        "ops@1.0.192.in-addr.arpa",
        f"ops@{'a' * 64}.local",
        "@corp.local",
        "local",
    ],
)
def test_what_is_an_address_in_no_network_is_refused_everywhere(address: str) -> None:
    for internal in (False, True):
        with pytest.raises(BadContent, match=r"^bad_receiver: "):
            receiver(address, internal=internal)
