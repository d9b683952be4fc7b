"""Evidence that accompanies a release or model, for recipients: signatures, an assessment, dataset metadata."""

from typing import TYPE_CHECKING

from privmix._lazy import lazily

if TYPE_CHECKING:
    from privmix.certificate.certificate import Certificate, read_certificate
    from privmix.certificate.keys import PrivateKey, PublicKey, new_key_files
    from privmix.certificate.sealed_key import AuditorKey, AuditorPublicKey
    from privmix.certificate.signing import (
        ATTESTATION_FILE,
        Signature,
        Subject,
        claimed_key,
        sign_folder,
        verify_signature,
    )
    from privmix.certificate.verification import Verification
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "ATTESTATION_FILE",
    "AuditorKey",
    "AuditorPublicKey",
    "Certificate",
    "PrivateKey",
    "PublicKey",
    "Signature",
    "Subject",
    "Verification",
    "claimed_key",
    "new_key_files",
    "read_certificate",
    "sign_folder",
    "verify_signature",
]
