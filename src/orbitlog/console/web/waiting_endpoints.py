"""Endpoints of messages that wait or were given up: scheduled ones, transactions, dead letters; and the audit log."""

from __future__ import annotations

import asyncio

from orbitlog.console.console_call import Call
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views import audit_view, later_view, letter_view, transaction_view
from orbitlog.console.views.body_rights import list_within_rights
from orbitlog.console.web.endpoint import Endpoint


async def list_later(call: Call) -> later_view.LaterAnswer:
    return await list_within_rights(call, lambda: later_view.list_later(call.cluster, call.query))


async def list_transactions(call: Call) -> transaction_view.TransactionListing:
    return await transaction_view.list_transactions(call.cluster, call.query)


async def list_letter_groups(call: Call) -> letter_view.LetterGroupListing:
    return await letter_view.list_letter_groups(call.cluster)


async def list_letters(call: Call) -> letter_view.LetterListing:
    return await list_within_rights(
        call, lambda: letter_view.list_letters(call.cluster, call.path["group"], call.query)
    )


async def list_audit(call: Call) -> audit_view.AuditListing:
    return await asyncio.to_thread(audit_view.list_audit, call.console.audit, call.query, call.console.now_ms)


_CLUSTER = "/clusters/{cluster}"
WAITING_ENDPOINTS = (
    Endpoint(
        f"{_CLUSTER}/later",
        "listScheduled",
        "Show scheduled messages: a month with counts, the hours of a day, and messages.",
        later_view.LaterAnswer,
        list_later,
        query=later_view.LaterQuery,
        template="later.html",
        title="Later",
        section="later",
        is_live=False,
    ),
    Endpoint(
        f"{_CLUSTER}/transactions",
        "listTransactions",
        "List transactions that were neither committed nor rolled back.",
        transaction_view.TransactionListing,
        list_transactions,
        query=transaction_view.TransactionQuery,
        template="transactions.html",
        title="Transactions",
        section="transactions",
    ),
    Endpoint(
        f"{_CLUSTER}/dead-letters",
        "listDeadLetterGroups",
        "List groups that have dead letters.",
        letter_view.LetterGroupListing,
        list_letter_groups,
        template="letter_groups.html",
        title="Dead letters",
        section="dead-letters",
    ),
    Endpoint(
        f"{_CLUSTER}/dead-letters/{{group}}",
        "listDeadLetters",
        "List dead letters of a group.",
        letter_view.LetterListing,
        list_letters,
        query=letter_view.LetterQuery,
        template="letters.html",
        title="Dead letters of {group}",
        section="dead-letters",
        is_live=False,
    ),
    Endpoint(
        "/audit",
        "listAudit",
        "List the newest lines of the audit log.",
        audit_view.AuditListing,
        list_audit,
        query=audit_view.AuditQuery,
        template="audit.html",
        title="Audit",
        section="audit",
        role=Role.ADMIN,
    ),
)
