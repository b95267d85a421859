"""Who is let in: the address with the token, then its cookie, from this machine's name only.

The token stands in the address that is printed. It is exchanged for a cookie at once, so that it
stays in no bookmark that matters, no ``Referer`` and no history of pages.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from sweep.core.masking import keep_secret

HOSTS = ("127.0.0.1", "localhost")
# What a browser says of a request that comes from our own page, or from a person.
OWN_SITES = (None, "same-origin", "none")


def make_secret() -> str:
    """Return a secret that is hidden wherever this process would print it."""
    found = secrets.token_urlsafe(32)
    keep_secret(found)
    return found


@dataclass(frozen=True)
class Gate:
    """What lets browsers in.

    Attributes:
        port: At which the server listens. Browsers send a cookie to all ports of a host, so its
            name has the port in it.
    """

    port: int
    token: str = field(default_factory=make_secret, repr=False)
    session: str = field(default_factory=make_secret, repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return f"sweep-{self.port}"

    @property
    def address(self) -> str:
        """What a person opens."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def set_cookie(self) -> str:
        """Return the header that has a browser keep the cookie until it is closed."""
        return f"{self.cookie}={self.session}; HttpOnly; SameSite=Strict; Path=/"

    def is_for_us(self, host: str | None) -> bool:
        """Tell whether a request names this machine as its host.

        A site whose name was made to lead here (DNS rebinding) names itself.
        """
        return host in {f"{name}:{self.port}" for name in HOSTS}

    def takes(self, token: str) -> bool:
        """Tell whether a token is ours, in a time that does not say how much of it is right."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def knows(self, cookies: str | None) -> bool:
        """Tell whether a request's cookies hold ours."""
        try:
            found = SimpleCookie(cookies or "").get(self.cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(
            found.value.encode("utf-8", "replace"), self.session.encode()
        )
