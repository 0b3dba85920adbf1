"""The channels behind addresses."""

from collections.abc import Sequence

from untildone.ports import Notifier


def open_notifiers(urls: Sequence[str]) -> list[Notifier]:
    """The channels behind these addresses: webhooks by ourselves, everything else through apprise."""
    from untildone.notify.webhook import SCHEMES, Webhook, scheme_of

    channels: list[Notifier] = []
    for url in urls:
        if scheme_of(url) in SCHEMES:
            channels.append(Webhook(url))
        else:
            from untildone.notify.apprise import AppriseChannel

            channels.append(AppriseChannel(url))
    return channels
