"""TLS failures as sentences: what a certificate, a version or a peer without TLS did, and what to change."""

from __future__ import annotations

import ssl
from typing import NamedTuple


class TlsFailure(NamedTuple):
    """Why TLS failed."""

    sentence: str
    is_early_end: bool = False
    """Whether the peer closed the connection without a message of TLS."""


ENDED_EARLY = TlsFailure("the peer closed the connection during the handshake", is_early_end=True)
TOO_LONG = TlsFailure("the handshake of the peer is longer than any valid one")
TINY_RECORDS = TlsFailure("the peer sends very many records without content")
_BAD_CERTIFICATE = "the peer rejected the certificate of this end"
# OpenSSL's names of errors and of alerts that the peer sent.
_REASONS = {
    "TLSV1_ALERT_UNKNOWN_CA": f"{_BAD_CERTIFICATE}: it does not trust the CA that issued it",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{_BAD_CERTIFICATE}: it could not verify it",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_BAD_CERTIFICATE}: wrong host name, or invalid",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_BAD_CERTIFICATE}: it is expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": f"{_BAD_CERTIFICATE}: its kind or purpose is not supported",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a client certificate; set a certificate and its key",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate, and one is required",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "HTTP_REQUEST": "the peer speaks HTTP without TLS",
    "HTTPS_PROXY_REQUEST": "the peer is an HTTP client that takes this port for a proxy",
    "UNSUPPORTED_PROTOCOL": "no common TLS version; TLS 1.2 or newer is required",
    "TLSV1_ALERT_PROTOCOL_VERSION": "no common TLS version; TLS 1.2 or newer is required",
    "NO_SHARED_CIPHER": "no common cipher suite",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer refused the handshake: no common cipher suite, or it requires a client"
    " certificate",
    "NO_RENEGOTIATION": "the peer asked for a renegotiation, which is off",
}
# OpenSSL's codes of certificate errors (X509_V_ERR_...).
_EXPIRED, _NOT_YET_VALID, _SELF_SIGNED, _SELF_SIGNED_IN_CHAIN, _NO_ISSUER, _HOST, _IP = 10, 9, 18, 19, 20, 62, 64
_VERIFICATIONS = {
    _EXPIRED: "the certificate of the peer is expired",
    _NOT_YET_VALID: "the certificate of the peer is not valid yet; compare the clocks of both machines",
    _SELF_SIGNED: "the certificate of the peer is self-signed and not trusted; give it, or its CA, as trusted",
    _SELF_SIGNED_IN_CHAIN: "the CA of the peer's certificate is not trusted; give the file of that CA",
    _NO_ISSUER: "the CA of the peer's certificate is not trusted; give the file of that CA",
}


def describe_failure(error: ssl.SSLError) -> TlsFailure:
    """Return the failure of a handshake or record."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ENDED_EARLY
    return TlsFailure(_sentence(error))


def _sentence(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code in (_HOST, _IP):
            return f"the certificate of the peer is for another host: {error.verify_message.rstrip('.').lower()}"
        return _VERIFICATIONS.get(code, f"the certificate of the peer is invalid: {error.verify_message}")
    reason = error.reason or str(error)
    return _REASONS.get(reason, f"TLS error {reason}")
