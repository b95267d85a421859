"""The one place that makes text fit for printing: messages, logs, crash files, records, the page.

What is secret is known in two ways. By its place: a password in a URL, in libpq's keywords, behind
an option or a name that says so. And by itself: what this process was given as a secret
(``keep_secret``) is hidden wherever it turns up again, in any of the forms in which URLs, Python,
JSON and shells write it. Where it is unclear how much is secret, more is hidden rather than less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "***"
LEAST = 4  # of a shorter text every message is full: it is hidden by its place alone

# Names whose values are secret: "--api-key", "HF_TOKEN"; not "--keys", "--max-tokens".
_NAME = re.compile(
    r"(^|_)(KEY|APIKEY|TOKEN|PASSWORD|PGPASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIALS?|BEARER)$"
    r"|(^|_)(DB|DATABASE|USER|MYSQL|POSTGRES|PG|REDIS|MONGO|SMTP|LOGIN)_?(PASS|PWD)$"
)
# Tokens that are known by their looks, whatever stands before them.
TOKENS = re.compile(
    r"(?<![\w-])(?:hf_\w{30,}|gh[pousr]_\w{30,}|github_pat_\w{40,}|glpat-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{20,}|AKIA[A-Z0-9]{16}|sk-(?=[\w-]*\d)(?=[\w-]*[A-Z])[\w-]{20,})(?![\w-])"
    r"|(?<=hooks\.slack\.com/services/)[\w/-]+"
)
_USERS = r"(?:db|database|user|mysql|postgres|pg|redis|mongo|smtp|login)[_-]?(?:pass|pwd)"
_WORDS = (
    r"(?:ssl|pg)?passw(?:or)?d|passphrase|secret|(?:api|access|auth)[_-]?(?:key|token)|token"
    rf"|{_USERS}"
)
_ASSIGNED = re.compile(
    rf"(?i)\b((?:\w{{1,60}}_)?(?:{_WORDS}))(\s*=\s*)('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|\S+)"
)
_IN_JSON = re.compile(
    rf"(?i)([\"'](?:{_WORDS})[\"']\s*:\s*)('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
)
_HEADER = re.compile(
    r"(?i)\b((?:(?:proxy-)?authorization|x-[\w-]*(?:key|token))[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"']+"
)
# An option and its value, in a command's text or in a list of its words.
_OPTION = re.compile(
    r"(?i)((?<![\w-])--(?=\w)(?:[\w-]{0,60}[_-])?"
    rf"(?:key|apikey|token|password|passwd|passphrase|secret|credentials?|bearer|{_USERS}))"
    r"(=|\s+|[\"'],\s*)([\"']?)[^\s\"'\]{},][^\s\"'\],]*"
)
# To the last "@" before a space: a raw "@", "/" or quote within the password too.
_SCHEME = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{0,30}://")
_RUN = re.compile(r"\S+")
_QUERY_SECRET = re.compile(r"(?i)([?&](?:\w*passw(?:or)?d|\w*token|\w*secret|api_?key)=)[^&\s]+")
_PLAIN_USER = re.compile(r"[\w.%+~-]*")
# A URL of which nothing is odd. Only such a one is shown, less its password.
_PLAIN_URL = re.compile(
    r"(?s)(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?:(?P<user>[\w.%+~-]*)(?P<secret>:.*)?@)?"
    r"(?P<place>(?:(?:[\w.%-]+|\[[\da-fA-F:.]*\])?(?::\d{1,5})?)"
    r"(?:,(?:[\w.%-]+|\[[\da-fA-F:.]*\])(?::\d{1,5})?)*)"
    r"(?P<path>/[\w./%+~-]*)?(?P<query>\?[\w=&./%+~,:-]*)?"
)
_PASSWORD_IN_QUERY = re.compile(r"(?i)pass|secret|token")

_BREAKS = re.compile(r"[\s@:/?#%&=+;,'\"\\{}\[\]<>|`]+")

_kept: set[str] = set()
_forms: re.Pattern[str] | None = None


def keep_secret(*values: str, besides: Iterable[str] = ()) -> None:
    """Have these texts hidden in all that this process prints from now on.

    Args:
        besides: What is shown everywhere in any case (a user's name): equal to it, it is no secret.
    """
    global _forms
    shown = {"sweep", "postgres", "password", "secret", "token", *besides}
    new = {value for value in values if len(value) >= LEAST and value not in shown} - _kept
    if not new:
        return
    _kept.update(new)
    forms = {form for value in _kept for form in _write_forms(value) if len(form) >= LEAST}
    # Who takes a URL apart wrongly names parts of it.
    parts = {part for value in _kept for part in _BREAKS.split(value) if len(part) >= LEAST}
    whole = "|".join(map(re.escape, sorted(forms, key=lambda form: (-len(form), form))))
    words = "|".join(map(re.escape, sorted(parts - shown, key=lambda part: (-len(part), part))))
    _forms = re.compile(rf"{whole}|(?<![^\W_])(?:{words})(?![^\W_])" if words else whole)


def forget_secrets() -> None:
    """Forget what was kept."""
    global _forms
    _kept.clear()
    _forms = None


def keep_url(url: str) -> None:
    """Have the password of a URL hidden from now on, as it stands there and decoded."""
    rest = re.sub(r"^[A-Za-z][\w+.-]*:/*", "", url.strip())
    credentials, at, place = rest.rpartition("@")
    user, _, secret = credentials.partition(":")
    database = place.partition("?")[0].partition("/")[2]
    if at:
        keep_secret(secret, unquote(secret), besides=(user, unquote(user), database))
    for pair in re.split(r"[?&]", unquote_plus(rest)):
        name, _, value = pair.partition("=")
        if _PASSWORD_IN_QUERY.search(name):
            keep_secret(value, unquote(value))


def keep_environment(environ: Mapping[str, str]) -> None:
    """Have what an environment's variables hold of secrets hidden from now on."""
    for name, value in environ.items():
        if name == "SWEEP_STORAGE" or ("://" in value and "@" in value):
            keep_url(value)
        # A path is none; but what an argument held is, whatever it looks like.
        if name.startswith("SWEEP_SECRET_") or (names_secret(name) and not value.startswith("/")):
            keep_secret(value)


def names_secret(name: str) -> bool:
    """Tell whether a name (of an option, a variable, a key) says that its value is secret."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-+"))  # authToken
    return bool(_NAME.search(words.replace("-", "_").replace(".", "_").upper()))


def mask(text: str) -> str:
    """Return free text without what is secret in it."""
    if _forms is not None:
        text = _forms.sub(MASK, text)
    # First what has quotes around it: a URL's end is not told within.
    text = TOKENS.sub(MASK, _ASSIGNED.sub(rf"\1\2{MASK}", text))
    text = _HEADER.sub(rf"\1{MASK}", text)
    if "://" in text:
        text = _QUERY_SECRET.sub(rf"\1{MASK}", _RUN.sub(_mask_credentials, text))
    if "--" in text:
        text = _OPTION.sub(rf"\1\2\3{MASK}", text)
    return _IN_JSON.sub(rf'\1"{MASK}"', text)


def mask_url(url: str) -> str:
    """Return a text that should be a URL, less its password; of an odd one the scheme at most."""
    url = url.strip()
    separator = url.find("://")
    if separator < 0:
        return url if re.fullmatch(r"[\w./~$ \[\]{}\",-]*", url) else MASK
    found = _PLAIN_URL.fullmatch(url)
    scheme = url[: separator + 3]
    odd = scheme + MASK if re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://", scheme) else MASK
    if not found:
        return odd
    query = found["query"] or ""
    behind = url.partition("?")[2]
    if _PASSWORD_IN_QUERY.search(unquote(behind)):
        if "@" in unquote(behind):  # of the user's password, or of the one behind it?
            return odd
        query = f"?{MASK}"
    secret = f":{MASK}" if found["secret"] else ""
    user = "" if found["user"] is None else f"{found['user']}{secret}@"
    return f"{found['scheme']}{user}{found['place']}{found['path'] or ''}{query}"


def holds_password(url: str) -> bool:
    """Tell whether a database's address has a password in it, as a URL or as libpq's keywords."""
    is_url = re.search(r"(?s)://[^/?@]*:.*@", url) or re.search(r"(?s)^[^/?@:]+:[^/].*@", url)
    return bool(is_url or re.search(r"(?i)pass\w*\s*=", unquote(url)))


def hide_arguments(argv: Sequence[str]) -> list[str]:
    """Return a command without passwords in URLs and the values of options that name secrets."""
    found: list[str] = []
    for before, word in zip(("", *argv), argv, strict=False):
        name, equals, value = word.partition("=")
        if is_secret_option(before) and not word.startswith("-"):
            found.append(word if _is_placeholder(word) else MASK)
        elif before == "--set":
            found.append(hide_setting(word))
        elif equals and names_secret(name) and not _is_placeholder(value):
            found.append(f"{name}={MASK}")
        else:
            found.append(mask(word))
    return found


def hide_setting(text: str) -> str:
    """Return ``KEY=VALUE`` without what is secret in it, fit also to be shortened."""
    path, equals, value = text.partition("=")
    if not equals:
        return mask(text)
    if path.strip().split(".")[0] == "storage":
        keep_url(value)
        return f"{path}={mask_url(value)}"
    if names_secret(path) and value:
        keep_secret(value)
        return f"{path}={MASK}"
    return f"{path}={mask(value)}"


def hide_value(path: str, text: str) -> str:
    """Return a value of a study file, as text, without what is secret in it.

    Args:
        path: Its key, with dots.
    """
    return hide_setting(f"{path}={text}").partition("=")[2]


def is_secret_option(word: str) -> bool:
    """Tell whether an argument is an option whose value, the next argument, is secret."""
    return word.startswith("-") and "=" not in word and names_secret(word)


def _is_placeholder(word: str) -> bool:
    return bool(re.fullmatch(r"\{[^{}:]*\}", word))


def _mask_credentials(run: re.Match[str]) -> str:
    """Return text without a space in it, less what stands between "://" and its last "@"."""
    before, at, behind = run[0].rpartition("@")
    found = _SCHEME.search(before) if at else None
    if found is None:
        return run[0]
    before, scheme, credentials = before[: found.start()], found[0], before[found.end() :]
    user, colon, _ = credentials.partition(":")
    if scheme.lower().startswith("postgres"):
        shown = user if _PLAIN_USER.fullmatch(user) else MASK
        return f"{before}{scheme}{shown}{':' + MASK if colon else ''}@{behind}"
    # Elsewhere a name alone may be a token; an "@" may also stand in a path.
    is_secret = colon or "/" not in credentials
    return f"{before}{scheme}{MASK}@{behind}" if is_secret else run[0]


def _write_forms(value: str) -> set[str]:
    """Return a secret as URLs, Python, JSON and shells write it."""
    found = {value, repr(value)[1:-1], ascii(value)[1:-1], repr(repr(value))[2:-2]}
    found |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    found |= {value.replace("'", "'\"'\"'"), value.replace("\\", "\\\\").replace("'", "\\'")}
    encodable = value.encode("utf-8", "surrogateescape")
    for safe in ("", "/", "+", " +"):
        found |= {quote(encodable, safe=safe), quote(encodable, safe=safe).lower()}
    found.add(quote_plus(encodable))
    # What is broken over lines (a log's record) begins anew: each line counts.
    lines = value.splitlines()
    return found | (set(lines) if len(lines) > 1 else set())
