"""Typed dictionaries of requests and responses. Written by scripts/client from the routes of the API."""

from __future__ import annotations

from typing import Generic, NotRequired, TypedDict, TypeVar

from kingdom.client.models.court import ActiveAlert as ActiveAlert
from kingdom.client.models.court import BudgetState as BudgetState
from kingdom.client.models.court import BudgetSummary as BudgetSummary
from kingdom.client.models.court import ConditionState as ConditionState
from kingdom.client.models.court import CostState as CostState
from kingdom.client.models.court import CourtProblem as CourtProblem
from kingdom.client.models.court import CourtState as CourtState
from kingdom.client.models.court import CourtSummary as CourtSummary
from kingdom.client.models.court import GeneralRecord as GeneralRecord
from kingdom.client.models.court import GeneralState as GeneralState
from kingdom.client.models.court import HealthState as HealthState
from kingdom.client.models.court import HistoryPoint as HistoryPoint
from kingdom.client.models.court import JournalLine as JournalLine
from kingdom.client.models.court import LimitState as LimitState
from kingdom.client.models.court import LimitUse as LimitUse
from kingdom.client.models.court import MachineSoldier as MachineSoldier
from kingdom.client.models.court import MachineState as MachineState
from kingdom.client.models.court import ModelSpending as ModelSpending
from kingdom.client.models.court import PlannedRun as PlannedRun
from kingdom.client.models.court import QueueState as QueueState
from kingdom.client.models.court import ReportDocument as ReportDocument
from kingdom.client.models.court import Setting as Setting
from kingdom.client.models.court import SettingsFile as SettingsFile
from kingdom.client.models.court import SoldierAtWork as SoldierAtWork
from kingdom.client.models.court import SpendingInfo as SpendingInfo
from kingdom.client.models.court import StatsDocument as StatsDocument
from kingdom.client.models.court import StatsHistory as StatsHistory
from kingdom.client.models.court import TaskDurations as TaskDurations
from kingdom.client.models.court import TaskFigures as TaskFigures
from kingdom.client.models.inbox import Acknowledged as Acknowledged
from kingdom.client.models.inbox import InboxItem as InboxItem
from kingdom.client.models.inbox import Muted as Muted
from kingdom.client.models.inbox import MutedItem as MutedItem
from kingdom.client.models.requests import AddTaskChange as AddTaskChange
from kingdom.client.models.requests import AddWorkChange as AddWorkChange
from kingdom.client.models.requests import Deleted as Deleted
from kingdom.client.models.requests import ErrorBody as ErrorBody
from kingdom.client.models.requests import Failed as Failed
from kingdom.client.models.requests import GitRefBody as GitRefBody
from kingdom.client.models.requests import GitRefFields as GitRefFields
from kingdom.client.models.requests import LandFields as LandFields
from kingdom.client.models.requests import McpServerRefBody as McpServerRefBody
from kingdom.client.models.requests import McpServerRefFields as McpServerRefFields
from kingdom.client.models.requests import OpenQuestion as OpenQuestion
from kingdom.client.models.requests import RemoveTaskChange as RemoveTaskChange
from kingdom.client.models.requests import RemoveWorkChange as RemoveWorkChange
from kingdom.client.models.requests import ReorderTasksChange as ReorderTasksChange
from kingdom.client.models.requests import ReorderWorksChange as ReorderWorksChange
from kingdom.client.models.requests import RoleState as RoleState
from kingdom.client.models.requests import SetDetailsChange as SetDetailsChange
from kingdom.client.models.requests import SetGitRefsChange as SetGitRefsChange
from kingdom.client.models.requests import SetLandPlanChange as SetLandPlanChange
from kingdom.client.models.requests import SetMcpServerRefsChange as SetMcpServerRefsChange
from kingdom.client.models.requests import TaskBody as TaskBody
from kingdom.client.models.requests import TaskFields as TaskFields
from kingdom.client.models.requests import TaskValues as TaskValues
from kingdom.client.models.requests import Template as Template
from kingdom.client.models.requests import TemplateBody as TemplateBody
from kingdom.client.models.requests import UpdateTaskChange as UpdateTaskChange
from kingdom.client.models.requests import UpdateWorkChange as UpdateWorkChange
from kingdom.client.models.requests import WebhookAccepted as WebhookAccepted
from kingdom.client.models.requests import WorkBody as WorkBody
from kingdom.client.models.requests import WorkFields as WorkFields
from kingdom.client.models.requests import WorkValues as WorkValues
from kingdom.client.models.requests import YamlText as YamlText
from kingdom.client.models.server import Alive as Alive
from kingdom.client.models.server import BrowserSession as BrowserSession
from kingdom.client.models.server import ChangedRole as ChangedRole
from kingdom.client.models.server import DeadLetterState as DeadLetterState
from kingdom.client.models.server import EndedSession as EndedSession
from kingdom.client.models.server import EventState as EventState
from kingdom.client.models.server import HealthInfo as HealthInfo
from kingdom.client.models.server import LoggedOut as LoggedOut
from kingdom.client.models.server import NewToken as NewToken
from kingdom.client.models.server import PayloadPreview as PayloadPreview
from kingdom.client.models.server import Ready as Ready
from kingdom.client.models.server import Requeued as Requeued
from kingdom.client.models.server import RevokedToken as RevokedToken
from kingdom.client.models.server import SearchHit as SearchHit
from kingdom.client.models.server import SessionInfo as SessionInfo
from kingdom.client.models.server import StreamInfo as StreamInfo
from kingdom.client.models.server import StreamSample as StreamSample
from kingdom.client.models.server import TokenInfo as TokenInfo
from kingdom.client.models.tasks import CommandAccepted as CommandAccepted
from kingdom.client.models.tasks import CourtEventDocument as CourtEventDocument
from kingdom.client.models.tasks import CourtEventState as CourtEventState
from kingdom.client.models.tasks import DocumentLink as DocumentLink
from kingdom.client.models.tasks import EventSchemaDocument as EventSchemaDocument
from kingdom.client.models.tasks import EventSummary as EventSummary
from kingdom.client.models.tasks import InjectedEvent as InjectedEvent
from kingdom.client.models.tasks import KnownEventType as KnownEventType
from kingdom.client.models.tasks import MessageDocument as MessageDocument
from kingdom.client.models.tasks import MessageState as MessageState
from kingdom.client.models.tasks import MessageSummary as MessageSummary
from kingdom.client.models.tasks import RelatedTask as RelatedTask
from kingdom.client.models.tasks import ResentMessage as ResentMessage
from kingdom.client.models.tasks import SoldierState as SoldierState
from kingdom.client.models.tasks import TaskAnswer as TaskAnswer
from kingdom.client.models.tasks import TaskCost as TaskCost
from kingdom.client.models.tasks import TaskState as TaskState
from kingdom.client.models.tasks import TaskSummary as TaskSummary
from kingdom.client.models.tasks import TraceLine as TraceLine
from kingdom.client.models.tasks import TranscriptEntry as TranscriptEntry
from kingdom.client.models.tasks import TranscriptPart as TranscriptPart
from kingdom.client.models.templates import ConvertedTemplate as ConvertedTemplate
from kingdom.client.models.templates import GitInfo as GitInfo
from kingdom.client.models.templates import McpServerInfo as McpServerInfo
from kingdom.client.models.templates import TemplateFields as TemplateFields
from kingdom.client.models.templates import TemplateSummary as TemplateSummary
from kingdom.client.models.workflows import AgentOutput as AgentOutput
from kingdom.client.models.workflows import AgentOutputItem as AgentOutputItem
from kingdom.client.models.workflows import AgentStatus as AgentStatus
from kingdom.client.models.workflows import ChangedFile as ChangedFile
from kingdom.client.models.workflows import CheckInfo as CheckInfo
from kingdom.client.models.workflows import CheckpointDamage as CheckpointDamage
from kingdom.client.models.workflows import CheckpointDiff as CheckpointDiff
from kingdom.client.models.workflows import CheckpointInfo as CheckpointInfo
from kingdom.client.models.workflows import CommentInfo as CommentInfo
from kingdom.client.models.workflows import DiffHunk as DiffHunk
from kingdom.client.models.workflows import DiffLine as DiffLine
from kingdom.client.models.workflows import LandAgainInfo as LandAgainInfo
from kingdom.client.models.workflows import LandingInfo as LandingInfo
from kingdom.client.models.workflows import PlanChangeResult as PlanChangeResult
from kingdom.client.models.workflows import PullRequestInfo as PullRequestInfo
from kingdom.client.models.workflows import QueryStatus as QueryStatus
from kingdom.client.models.workflows import ReportInfo as ReportInfo
from kingdom.client.models.workflows import ReportStatus as ReportStatus
from kingdom.client.models.workflows import ReportSummary as ReportSummary
from kingdom.client.models.workflows import RepositoryDiff as RepositoryDiff
from kingdom.client.models.workflows import RescueInfo as RescueInfo
from kingdom.client.models.workflows import RestoredRescue as RestoredRescue
from kingdom.client.models.workflows import TaskStatus as TaskStatus
from kingdom.client.models.workflows import TokenCounts as TokenCounts
from kingdom.client.models.workflows import VerificationResult as VerificationResult
from kingdom.client.models.workflows import WorkflowEvent as WorkflowEvent
from kingdom.client.models.workflows import WorkflowFull as WorkflowFull
from kingdom.client.models.workflows import WorkflowStatus as WorkflowStatus
from kingdom.client.models.workflows import WorkflowSummary as WorkflowSummary
from kingdom.client.models.workflows import WorkflowUsage as WorkflowUsage
from kingdom.client.models.workflows import WorkInfo as WorkInfo
from kingdom.client.models.workflows import WorkStatus as WorkStatus
from kingdom.client.models.workflows import WorkTaskInfo as WorkTaskInfo
from kingdom.client.models.workflows import WorkTreeInfo as WorkTreeInfo
from kingdom.client.models.workflows import WorkTreeStatus as WorkTreeStatus

T = TypeVar("T")


class Page(TypedDict, Generic[T]):
    """One page of a list."""

    items: list[T]
    nextCursor: str | None
    total: NotRequired[int]
