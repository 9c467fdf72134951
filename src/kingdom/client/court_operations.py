"""The operations of the API: court. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from kingdom.client.connection import Connection, given, path_segment
from kingdom.client.models import Page
from kingdom.client.models.court import (
    BudgetState,
    CourtState,
    GeneralRecord,
    GeneralState,
    JournalLine,
    ReportDocument,
    SettingsFile,
    StatsDocument,
    StatsHistory,
)


class CourtOperations(Connection):
    """The operations of the API: court."""

    def get_court(self) -> CourtState:
        """Get the state of the court."""
        answer: CourtState = self.request("GET", "/api/court")
        return answer

    def list_journal(
        self,
        *,
        type: str | None = None,
        actor: str | None = None,
        since: str | None = None,
        until: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[JournalLine]:
        """List journal lines, newest first."""
        answer: Page[JournalLine] = self.request(
            "GET",
            "/api/court/journal",
            query={
                "type": type,
                "actor": actor,
                "since": since,
                "until": until,
                "q": q,
                "limit": limit,
                "cursor": cursor,
            },
        )
        return answer

    def list_generals(self) -> Page[GeneralState]:
        """List generals."""
        answer: Page[GeneralState] = self.request("GET", "/api/generals")
        return answer

    def install_general(self, *, folder: str, replace: bool | None = None) -> GeneralState:
        """Install a general."""
        answer: GeneralState = self.request("POST", "/api/generals", body=given({"folder": folder, "replace": replace}))
        return answer

    def get_general(self, name: str) -> GeneralState:
        """Get a general."""
        answer: GeneralState = self.request("GET", f"/api/generals/{path_segment(name)}")
        return answer

    def get_general_record(self, name: str) -> GeneralRecord:
        """Get the record of a general."""
        answer: GeneralRecord = self.request("GET", f"/api/generals/{path_segment(name)}/record")
        return answer

    def enable_general(self, name: str, *, user: str | None = None) -> GeneralState:
        """Enable a general."""
        answer: GeneralState = self.request(
            "POST", f"/api/generals/{path_segment(name)}/enable", body=given({"user": user}) or None
        )
        return answer

    def disable_general(self, name: str, *, user: str | None = None) -> GeneralState:
        """Disable a general."""
        answer: GeneralState = self.request(
            "POST", f"/api/generals/{path_segment(name)}/disable", body=given({"user": user}) or None
        )
        return answer

    def list_settings(self) -> Page[SettingsFile]:
        """List the settings of the court."""
        answer: Page[SettingsFile] = self.request("GET", "/api/settings")
        return answer

    def get_stats(self) -> StatsDocument:
        """Get statistics by hour, day and general."""
        answer: StatsDocument = self.request("GET", "/api/stats")
        return answer

    def get_stats_history(
        self, *, since: str | None = None, until: str | None = None, general: str | None = None
    ) -> StatsHistory:
        """Get statistics of a period, in equal steps."""
        answer: StatsHistory = self.request(
            "GET", "/api/stats/history", query={"since": since, "until": until, "general": general}
        )
        return answer

    def get_report(self, *, date: str | None = None) -> ReportDocument:
        """Get a daily report."""
        answer: ReportDocument = self.request("GET", "/api/report", query={"date": date})
        return answer

    def get_budget(self) -> BudgetState:
        """Get spending and budgets."""
        answer: BudgetState = self.request("GET", "/api/budget")
        return answer
