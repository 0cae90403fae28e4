"""What an address on the web answers: by the proxies and the authorities of the environment, redirects followed."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from scheduler.errors import SchedqError

PLAIN = "identity"
AGENT = "schedq"
"""What we are called where one is asked: some servers answer nobody who is called urllib."""


def opened(url: str, headers: Mapping[str, str], patience_s: float) -> Any:
    """The answer to a request, its body unread; `patience_s` is how long its server may say nothing.

    HTTPError for an answer that is none; URLError or another OSError if there was none. SchedqError: it leads where
    nobody is to follow, its server is not who it says, or gives it packed.
    """
    proxies = _proxies()
    _refuse_socks(url, proxies)
    handlers = urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=_trust()), _Redirects()
    opener = urllib.request.build_opener(*handlers)
    asked = urllib.request.Request(url, headers={"User-Agent": AGENT, "Accept-Encoding": PLAIN, **headers})  # noqa: S310
    try:
        answer = opener.open(asked, timeout=patience_s)
    except urllib.error.HTTPError:
        raise
    except ValueError as error:
        raise SchedqError(f"{url} cannot be asked: {error}; look at the proxies of the environment") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise SchedqError(
                f"{url}: its certificate is not trusted ({error.reason.verify_message}); SSL_CERT_FILE names the "
                "authorities of your site"
            ) from None
        raise
    packed = answer.headers.get("Content-Encoding", PLAIN).strip().lower()
    if packed not in ("", PLAIN):
        answer.close()
        raise SchedqError(
            f"{url}: its server gives it packed (Content-Encoding: {packed}), though it was asked not to; get it "
            "yourself, or correct its url in the manifest"
        )
    return answer


def version_in(headers: Any) -> dict[str, str | None]:
    """What the headers of an answer say of its version: `etag` and `modified`."""
    return {"etag": headers.get("ETag"), "modified": headers.get("Last-Modified")}


def fault(url: str) -> str:
    """Why an address is none that can be asked, a few words; "" if it is one."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https"):
            if not url.isascii() or any(char <= " " or char == "\x7f" for char in url):
                return "it has a blank, or a character that an address writes as %XX"
            if parts.port is None and parts.netloc.endswith(":"):
                return "it has a colon and no port"
            return "" if parts.hostname else "it names no server"
        return "" if parts.scheme == "file" else "http, https and file are understood"
    except ValueError as error:
        return str(error)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects as far as they keep what protects a download."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError as error:
            fp.close()
            raise SchedqError(f"{req.full_url} leads to an address that is none: {error}") from None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if after != "https" and (before == "https" or after != "http"):
            fp.close()
            raise SchedqError(f"{req.full_url} leads to {newurl}, which is not {before}: not followed")
        if why := fault(newurl):
            fp.close()
            raise SchedqError(f"{req.full_url} leads to {newurl}, which is no address: {why}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _proxies() -> dict[str, str]:
    """The proxies of the environment; `all_proxy` stands for those that are not named."""
    found = urllib.request.getproxies()
    for_all = found.pop("all", "")
    return {**({"http": for_all, "https": for_all} if for_all else {}), **found}


def _refuse_socks(url: str, proxies: Mapping[str, str]) -> None:
    parts = urlsplit(url)
    kind = proxies.get(parts.scheme, "").partition("://")[0].lower()
    if kind.startswith("socks") and not urllib.request.proxy_bypass(parts.hostname or ""):
        raise SchedqError(
            f"{url}: the proxy of the environment is a SOCKS one ({kind}), and files are fetched through http proxies "
            f"alone; name one in {parts.scheme}_proxy, or {parts.hostname} in no_proxy"
        )


def _trust() -> ssl.SSLContext:
    """The authorities that count: the system's, or those that the environment names."""
    named = (os.environ.get(name) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
    return ssl.create_default_context(cafile=next((each for each in named if each and os.path.isfile(each)), None))
