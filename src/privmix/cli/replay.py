"""``privmix replay``: make a release again beside its records, by an auditor's key, or end that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privmix import certificate, jobs
from privmix.cli.app import REFUTED, app
from privmix.cli.console import err, out, plain, print_json
from privmix.cli.options import Json
from privmix.cli.passphrase import VARIABLE, passphrase_of
from privmix.cli.progress import progress_bars
from privmix.cli.verb import verb
from privmix.errors import InvalidInput
from privmix.jobs.replay_options import ReplayOptions

if TYPE_CHECKING:
    from privmix.jobs.replaying import Replay


@verb(app)
def replay(
    *,
    release: Annotated[Path, typer.Argument(help="Folder that privmix release --replay-for wrote.")],
    data: Annotated[str | None, typer.Option(help="The private dataset, as the release read it.")] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help=f"The auditor's private key (PEM). Its passphrase is asked for, or in {VARIABLE}. With --destroy: to "
            "be destroyed, too."
        ),
    ] = None,
    asked: ReplayOptions,
    destroy: Annotated[
        bool, typer.Option("--destroy", help="Overwrite and remove the sealed key, and state that under a signature.")
    ] = False,
    sign_key: Annotated[
        Path | None, typer.Option(help="With --destroy: private key (PEM) to sign the statement with (privmix keygen).")
    ] = None,
    json_output: Json = False,
) -> None:
    """Make every byte of a release again, beside its records, by an auditor's key; say equal, or where not.

    What no test of the released numbers can see is found with certainty: noise of another law, size or key, noise that
    was used twice, other records, another plan. Exit code 4 if anything differs. Tell nobody more of it than "equal".

    With --destroy the sealed key ends: it is overwritten and removed, and a signed statement of that becomes part of
    the release. It is the signer's word: that no copy is left can be shown by nobody. With --key the auditor's private
    key ends, too, and with it all copies that only this one opens.

    Example: privmix replay REL --data mnist --key auditor.pem

    Its end: privmix replay REL --destroy --sign-key ana.pem
    """
    if destroy:
        _destroy(release, data, key, asked, sign_key, json_output)
        return
    if sign_key is not None:
        raise InvalidInput("sign_key", str(sign_key), "nothing without --destroy")
    if data is None or key is None:
        missing = "data" if data is None else "key"
        raise InvalidInput(missing, None, "the private dataset and an auditor's key, to make the release again")
    opened = certificate.AuditorKey.read(key, passphrase_of(key))
    with progress_bars() as progress:
        found = jobs.replaying.carry_out(release, data, opened, asked, progress)
    if json_output:
        print_json(found.to_dict())
    else:
        _show(found)
    if not found.equal:
        raise typer.Exit(REFUTED)


def _show(found: Replay) -> None:
    comparison = found.comparison
    if found.equal:
        out.print(
            f"[green]equal:[/] the records are those that the certificate commits to, and every byte of "
            f"{comparison.files:,} files ({comparison.rows:,} rows) is made again",
            soft_wrap=True,
        )
    else:
        out.print("[red]not equal:[/]")
        for text in found.found:
            out.print(f"- {plain(text)}", soft_wrap=True)
    for text in found.notes:
        err.print(f"[yellow]note:[/] {plain(text)}", soft_wrap=True)


def _destroy(
    release: Path, data: str | None, key: Path | None, asked: ReplayOptions, sign_key: Path | None, json_output: bool
) -> None:
    if data is not None:
        raise InvalidInput("data", data, "none with --destroy")
    if sign_key is None:
        raise InvalidInput("sign_key", None, "a private key to sign with (privmix keygen), with --destroy")
    ended = jobs.replaying.end_replay(
        release, sign_key=sign_key, sealed_key=asked.sealed_key, key=key, passphrase=passphrase_of
    )
    if json_output:
        print_json({"statement": str(ended.statement), "key_id": ended.key_id, **vars(ended.ending)})
        return
    out.print(f"[green]destroyed:[/] the sealed key of release {ended.ending.release}", soft_wrap=True)
    for name in ended.ending.auditor_keys:
        out.print(f"[green]destroyed:[/] the auditor's key {name}", soft_wrap=True)
    out.print(f"stated: {plain(ended.statement)}, signed by key {ended.key_id}", soft_wrap=True)
    out.print(plain(ended.ending.says), soft_wrap=True)
    out.print("If the release is signed, sign it anew: there is one more file (privmix sign --overwrite).")
