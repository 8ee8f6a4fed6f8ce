/**
 * What the server extension and the service answer. Made by wire_types.py from their own classes: do not edit.
 */

/** The part of an `AllocationView` in one pool, which has a ledger of its own; `metric` is what it is compared by. */
export interface AllocationInPool {
  pool: string;
  budget_gpu_s: number;
  occupancy_gpu_s: number;
  commitment_gpu_s: number;
  owed_gpu_s: number;
  due_gpu_s: number;
  metric: number | null;
  gpus_held: number;
  gpus_queued: number;
  gpus_wanted: number;
}

/** An allocation before or after a change; without a share it was not there. */
export interface AllocationThen {
  share: string | null;
  entitlement: number | null;
  members: string[];
}

/** A node of the budget tree. `entitlement` is a fraction of the whole; `metric` < 1 is under-served. */
export interface AllocationView {
  path: string;
  share: string | number;
  members: string[];
  leaf: boolean;
  entitlement: number;
  budget_gpu_s: number;
  occupancy_gpu_s: number;
  commitment_gpu_s: number;
  owed_gpu_s: number;
  due_gpu_s: number;
  metric: number | null;
  gpus_held: number;
  gpus_queued: number;
  gpus_wanted: number;
  pools: AllocationInPool[];
}

/** What an operator tells everybody, from `from_s` until `until_s` (null: until it is withdrawn). `link`: where there is more to read; "" if nowhere. */
export interface Announcement {
  id: number;
  state: 'coming' | 'current' | 'over' | 'withdrawn';
  severity: 'info' | 'warning' | 'critical';
  text: string;
  link: string;
  from_s: number;
  until_s: number | null;
  by: string;
  made_s: number;
  withdrawn_by: string;
  withdrawn_s: number | null;
}

/** What is to be seen now, or a page of all there were; and the maintenance that is planned, the first first. */
export interface Announcements {
  announcements: Announcement[];
  maintenance: Plan[];
  more: boolean;
}

/** One change. `request`: the number of the one that it fulfilled; `count`: of allocations, of which some are listed. */
export interface BudgetChange {
  number: number;
  at_s: number;
  by: string;
  why: string;
  request: number | null;
  count: number;
  allocations: ChangedAllocation[];
}

/** Who decided what. `amended`: something else was accepted than was asked for. */
export interface BudgetDecision {
  by: string;
  at_s: number;
  accepted: boolean;
  words: string;
  amended: boolean;
}

/** A page of changes, the newest first. */
export interface BudgetHistory {
  changes: BudgetChange[];
  more: boolean;
}

/** A wish for other shares, and what became of it. `state`: "open", "accepted" (its time has not come), "in_force", "over", "refused", "withdrawn" or "failed". `wished` was asked for, `shares` is what was accepted, `before` what it was when that came into force. All three are shares by path. `gpus`: so many GPUs were asked for; null: shares were. `may`: whether the reader may "decide" it, or "withdraw" it. */
export interface BudgetRequest {
  id: number;
  state: 'open' | 'accepted' | 'in_force' | 'over' | 'refused' | 'withdrawn' | 'failed';
  user: string;
  asked_s: number;
  wished: Record<string, string>;
  gpus: number | null;
  shares: Record<string, string>;
  why: string;
  from_s: number | null;
  until_s: number | null;
  decision: BudgetDecision | null;
  preview: BudgetTrial | null;
  before: Record<string, string>;
  in_force_s: number | null;
  over_s: number | null;
  problem: string;
  may: Record<string, boolean>;
}

/** A page of them, the newest first. `user` is who reads; `owner`: they own budgets. */
export interface BudgetRequests {
  user: string;
  owner: boolean;
  requests: BudgetRequest[];
  more: boolean;
}

/** A what-if that somebody attached; `found` (as of `gpufair whatif --json`) is there where one request is read. */
export interface BudgetTrial {
  by: string;
  at_s: number;
  found?: Record<string, unknown> | null;
}

/** The budget tree, parents before children, over the lookback window. */
export interface Budgets {
  allocations: AllocationView[];
  window_s: number;
  banking: number;
  capacity_gpu_s: number;
}

/** Owed and charged over time, in each pool. */
export interface BudgetsOverTime {
  pools: CoursesInPool[];
}

/** A cell that is not answered yet, whoever sent it. */
export interface Cell {
  msg_id: string;
  cell_id: string | null;
  state: 'sent' | 'held';
}

/** In the order in which they run. */
export interface Cells {
  cells: Cell[];
}

/** `change`: "added", "removed" or "changed". */
export interface ChangedAllocation {
  path: string;
  change: 'added' | 'removed' | 'changed';
  before: AllocationThen;
  after: AllocationThen;
}

/** A durable checkpoint. `lost`: (variable, reason) pairs that it does not hold. */
export interface CheckpointView {
  id: string;
  sequence: number;
  at_s: number;
  size_bytes: number;
  duration_s: number;
  lost: ([string, string])[];
}

/** One way to ask, and what would come of it. `outlook`: "now", "makes room", "start by" (binding), "estimated", "unknown" or "refused"; `at_s`: when, or None. */
export interface Choice {
  outlook: 'now' | 'makes room' | 'start by' | 'estimated' | 'unknown' | 'refused';
  gpus: number;
  nodes: number;
  gpu_type: string;
  min_runtime_s: number;
  at_s: number | null;
  right: string | null;
  committed_gpu_s: number;
  of_budget: number | null;
  sentence: string;
}

/** A wish as it is, other ways to ask, and one sentence of advice. */
export interface Coaching {
  asked: Choice;
  choices: Choice[];
  advice: string;
  warnings: string[];
  allocation: string;
  now_s: number;
}

/** What an allocation was owed and charged, a figure for each bin. */
export interface Course {
  path: string;
  leaf: boolean;
  entitlement: number;
  owed_gpu_s: number[];
  charged_gpu_s: number[];
}

/** Bins of `bin_s` from `start_s` on; the last one ends with `end_s`. */
export interface CoursesInPool {
  pool: string;
  start_s: number;
  end_s: number;
  bin_s: number;
  allocations: Course[];
}

/** Delivered / owed in one pool: `capped` is the headline. */
export interface DeliveredInPool {
  pool: string;
  start_s: number;
  end_s: number;
  capped: number | null;
  uncapped: number | null;
  capped_hourly: number | null;
  worst: Worst | null;
  allocations: DeliveredView[];
}

/** What an allocation was owed and charged. `ratio` is charged / owed; capped ones count no more than was owed. */
export interface DeliveredView {
  path: string;
  leaf: boolean;
  entitlement: number;
  owed_gpu_s: number;
  charged_gpu_s: number;
  capped_gpu_s: number;
  capped_hourly_gpu_s: number;
  ratio: number | null;
  researchers: ResearcherView[];
}

/** Delivered / owed of each pool. */
export interface Deliveries {
  pools: DeliveredInPool[];
}

/** How a cordoned node is to be emptied. `force`: protections that last longer are cut at the deadline. */
export interface DrainView {
  deadline_s: number | null;
  force: boolean;
}

/** One run of one cell, as the supervisor recorded it; `outputs` are notebook outputs. */
export interface Execution {
  msg_id: string;
  cell_id: string | null;
  code_sha256: string | null;
  execution_count: number | null;
  state: 'running' | 'done';
  status: 'ok' | 'error' | 'interrupted' | null;
  started_s: number;
  ended_s: number | null;
  again_from: string | null;
  outputs: (Record<string, unknown>)[];
}

/** Why a workload is where it is, computed from the same state as the decision. */
export interface Explanation {
  workload: string;
  sentence: string;
  pool: string;
  state: string;
  position: number | null;
  queued: number | null;
  level: string | null;
  mine: Side | null;
  other: Side | null;
  holders: HolderView[];
  start: StartTime | null;
  change: SmallestChange | null;
  threat: ThreatView | null;
  preempted: PreemptionView | null;
}

/** When a workload that waits now starts first. */
export interface ForeseenStart {
  workload: string;
  at_s: number;
}

/** One thing that happens if nothing new arrives. `until_s`: end of the protection, or deadline of the notice. */
export interface ForeseenStep {
  at_s: number;
  what: string;
  workload: string;
  user: string;
  allocation: string;
  gpus: number;
  nodes: string[];
  why: string;
  reason: string | null;
  beneficiary: string | null;
  until_s: number | null;
}

/** GPU × time from `since_s` on, which is later than was asked for where no more is known, or it is too much. */
export interface GpuHistory {
  now_s: number;
  since_s: number;
  nodes: NodeHistory[];
}

/** What the service suggests to its owner. */
export interface Hint {
  kind: string;
  since_s: number;
  text: string;
}

/** Who has GPUs that the asker could use, and until when they are protected. */
export interface HolderView {
  workload: string;
  user: string;
  allocation: string;
  gpus: number;
  leases: LeaseView[];
  until_s: number | null;
  protected: boolean;
  preemptible_now: boolean;
}

/** Part of a node on which a blocked workload will start: about `at_s`, and by `start_by_s` at the latest. */
export interface LandingView {
  workload: string;
  gpus: number;
  at_s: number;
  start_by_s: number;
}

/** GPUs held on one node. */
export interface LeaseView {
  node: string;
  gpus: number;
}

/** Of `of_gpu_s` remained `kept_gpu_s`. `ratio` None: unknown, or there was nothing. */
export interface Level {
  of_gpu_s: number;
  kept_gpu_s: number;
  ratio: number | null;
  losses: Loss[];
  coverage?: number | null;
}

/** The end of what was written. `after` is to be asked for the next time. `text` begins at `start`: where that is not what was asked for, it takes the place of all that was had. */
export interface Log {
  text: string;
  start: number;
  after: number;
  ended: boolean;
}

/** Where a part of a level went. */
export interface Loss {
  cause: string;
  gpu_s: number;
}

/** A variable that did not come back. */
export interface Missing {
  name: string;
  reason: string;
}

/** A session that is being moved to a CPU node, or (`failed` says why) was asked to and stayed. */
export interface MoveView {
  at_s: number;
  failed: string | null;
}

/** A live session or run of the reader's, of any server. `path`: of its notebook, below this server's root. */
export interface MySession {
  kernel_id: string;
  workload_id: string;
  state: 'queued' | 'starting' | 'restoring' | 'running' | 'checkpointing' | 'stopping' | 'parked' | 'ended';
  allocation: string;
  gpus: number;
  gpu_type: string | null;
  node: string | null;
  device_ids: string[];
  protected_until_s: number | null;
  deadline_s: number | null;
  leaving: string | null;
  utilization: number | null;
  position: number | null;
  estimate_s: number | null;
  start_by_s: number | null;
  reason: string;
  withheld: string;
  held_cells: number;
  progress: number | null;
  checkpoint: Saved | null;
  restore_offered: boolean;
  resumable: boolean;
  on_cpu: boolean;
  moving: boolean;
  suggestion: Hint | null;
  not_moved: string | null;
  lost: Missing[];
  name: string;
  kind: 'session' | 'batch';
  notebook: string;
  here: boolean;
  path: string | null;
}

/** The newest first. */
export interface MySessions {
  sessions: MySession[];
}

/** What was on one node. `devices`: ids of its GPUs, in the order of rows, where known. */
export interface NodeHistory {
  name: string;
  pool: string;
  gpu_type: string;
  gpus: number;
  devices: string[];
  stays: Stay[];
}

/** A machine of the service. */
export interface NodeView {
  name: string;
  pool: string;
  gpus: number;
  gpu_type: string;
  free_gpus: number;
  state: 'ready' | 'cordoned' | 'lost';
  cordoned: boolean;
  workloads: string[];
  last_seen_s: number | null;
  labels: Record<string, string>;
  cpus: number | null;
  memory_bytes: number | null;
  landings: LandingView[];
  drain: DrainView | null;
  protected: ProtectedView[];
  empty_by_s: number | null;
  closes_at_s: number | null;
  guest_gpus: number;
  problems: string[];
  clock_skew_s: number | null;
  agent_version: string;
}

/** Machines by name. `next` is the `cursor` of the next page; null: there is none. */
export interface Nodes {
  nodes: NodeView[];
  next: string | null;
}

/** Why the last checkpoint failed, where none came since. */
export interface NotSaved {
  at_s: number;
  reason: string;
}

/** Leaves of the budget tree where a user may submit, in its order. */
export interface OpenAllocations {
  user: string;
  allocations: string[];
}

/** What the supervisor recorded under a notebook's cells, in the order in which they were sent. */
export interface Outputs {
  executions: Execution[];
}

/** A planned maintenance: these nodes are closed at `at_s`. */
export interface Plan {
  id: string;
  nodes: string[];
  at_s: number;
}

/** As it is and as it would be; `after` is null where the allocation would be none any more. */
export interface PlayedAllocation {
  path: string;
  verdict: 'gains' | 'loses' | '';
  before: PlayedFigures;
  after: PlayedFigures | null;
}

/** How an allocation fares in hours that are played. */
export interface PlayedFigures {
  entitlement: number;
  gpus_held: number;
  delivered_gpu_s: number;
  unallocated_gpu_s: number;
  wait_s: PlayedWaits;
  waits: number;
  still_waiting: number;
  preemptions: number;
  metric: number | null;
}

/** How long workloads waited: half of them no longer than `p50`. Null where nobody waited. */
export interface PlayedWaits {
  p50: number | null;
  p90: number | null;
  max: number | null;
}

/** For whom it lost its GPUs the last time, by which right, and the sentence of the decision. */
export interface PreemptionView {
  by: string;
  right: string;
  why: string;
}

/** What a checkpoint would be like; `variables` (the worst first) only where it is asked for by itself. */
export interface PreflightView {
  at_s: number;
  parkable: boolean;
  reason?: string;
  size_bytes?: number;
  seconds?: number;
  bytes_per_s?: number;
  measured?: boolean;
  taken_s?: number;
  left_out?: number;
  variables?: VerdictView[] | null;
}

/** The steps from now until `until_s`; `cut` says why it ends earlier than was asked for. */
export interface Preview {
  now_s: number;
  until_s: number;
  cut: string;
  steps: ForeseenStep[];
  starts: ForeseenStart[];
}

/** A named shape that users start; each one is a kernelspec in Jupyter. */
export interface Profile {
  name: string;
  display_name: string;
  gpus: number;
  nodes: number;
  gpu_type: string;
  allocation: string;
  min_runtime_s: number;
  kind: string;
  priority: number;
  expected_s: number | null;
  idle_release_s: number | null;
  movable: boolean;
  cpus: number;
  memory_bytes: number;
  within: string;
  exclude: string[];
  where: Record<string, string>;
  pools: string[];
}

/** The named shapes that users start. */
export interface Profiles {
  profiles: Profile[];
}

/** How far a step has come; `fraction` in [0, 1]. */
export interface ProgressView {
  step: string;
  fraction: number;
}

/** Who is protected on a node, and until when. */
export interface ProtectedView {
  workload: string;
  until_s: number;
}

/** Availability, occupancy, impact and utilization of each pool. */
export interface Pyramid {
  pools: PyramidOfPool[];
}

/** Where GPU time went in one pool, from `start_s` to `end_s`. */
export interface PyramidOfPool {
  pool: string;
  start_s: number;
  end_s: number;
  availability: Level;
  occupancy: Level;
  impact: Level;
  utilization: Level;
  held_gpu_s: number;
  charged_gpu_s: number;
  unallocated_gpu_s: number;
  switching_gpu_s: number;
  capped: number | null;
  uncapped: number | null;
  capped_hourly: number | null;
  worst: Worst | null;
}

/** Queued workloads in the order in which they will be served; pages and `fields` as in `Workloads`. */
export interface QueuedWorkloads {
  now_s: number;
  workloads: Workload[];
  next: string | null;
}

/** What somebody was charged in a leaf. */
export interface ResearcherView {
  user: string;
  charged_gpu_s: number;
}

/** The last checkpoint of a session. */
export interface Saved {
  id: string;
  at_s: number;
  size_bytes: number;
  duration_s: number;
}

/** A kernel of the scheduler: of REST, of events, and of `gpufair` in Jupyter's own kernel models. */
export interface Session {
  kernel_id: string;
  workload_id: string;
  state: 'queued' | 'starting' | 'restoring' | 'running' | 'checkpointing' | 'stopping' | 'parked' | 'ended';
  allocation: string;
  gpus: number;
  gpu_type: string | null;
  node: string | null;
  device_ids: string[];
  protected_until_s: number | null;
  deadline_s: number | null;
  leaving: string | null;
  utilization: number | null;
  position: number | null;
  estimate_s: number | null;
  start_by_s: number | null;
  reason: string;
  withheld: string;
  held_cells: number;
  progress: number | null;
  checkpoint: Saved | null;
  restore_offered: boolean;
  resumable: boolean;
  on_cpu: boolean;
  moving: boolean;
  suggestion: Hint | null;
  not_moved: string | null;
  lost: Missing[];
}

/** One side of the deciding comparison: metric = (occupancy + commitment) / due. */
export interface Side {
  allocation: string;
  occupancy_gpu_s: number;
  commitment_gpu_s: number;
  budget_gpu_s: number;
  owed_gpu_s: number;
  due_gpu_s: number;
  metric: number | null;
}

/** The least that would start it now: a sentence, and the fields of the whole wish as it would be then. `amend` is what `Client.amend` has to be given to make it, `at_s` when it would start at the latest, and `costs` what its owner would give up. */
export interface SmallestChange {
  text: string;
  fields: Record<string, unknown>;
  amend: Record<string, unknown>;
  at_s: number | null;
  costs: string[];
}

/** When it will start. `kind` "start_by" is binding, "estimate" is not. */
export interface StartTime {
  kind: 'estimate' | 'start_by';
  at_s: number | null;
  because: string;
}

/** One workload on GPUs of one node. `to_s` None: it is there still. `preempted_s`: when it had to make room. */
export interface Stay {
  workload: string;
  user: string;
  allocation: string;
  rows: number[];
  from_s: number;
  up_s: number | null;
  to_s: number | null;
  protected: ([number, number])[];
  preempted_s: number | null;
  reason: string;
}

/** What its owner may want to do about a session. */
export interface SuggestionView {
  kind: string;
  since_s: number;
  text: string;
}

/** Who of those that wait could preempt it first, by which right, from when on, and the work it would lose. */
export interface ThreatView {
  by: string;
  right: string;
  earliest_s: number | null;
  loses_gpu_s: number;
}

/** Why some workloads of the last week waited, ran and were preempted. `about` says how much is recorded, `missing` what there was none of; `terms` by name: `means` and `where`. */
export interface Tour {
  since_s: number;
  until_s: number;
  whole_week: boolean;
  about: string;
  steps: TourStep[];
  missing: string[];
  terms: Record<string, unknown>;
}

/** One event or decision, as it was recorded. */
export interface TourLine {
  at_s: number;
  text: string;
}

/** A workload of the tour, and why it is in it; `terms` are those it uses. */
export interface TourStep {
  kind: 'own' | 'wait' | 'preemption' | 'landing' | 'debug';
  title: string;
  workload: string;
  label: string;
  name: string;
  user: string;
  allocation: string;
  mine: boolean;
  lines: TourLine[];
  terms: string[];
}

/** A checkpoint that is still there, with what it does not hold. */
export interface Trace {
  id: string;
  at_s: number;
  size_bytes: number;
  duration_s: number;
  lost: Missing[];
}

/** The newest first. */
export interface Traces {
  checkpoints: Trace[];
}

/** How busy the GPUs of a workload were in the minute that ended at `at_s`. `fraction`: their mean. `gpus`: (node, device, fraction) of each that was measured. */
export interface UtilizationView {
  at_s: number;
  fraction: number;
  gpus: ([string, string, number])[];
}

/** Of one variable: `state` is green (comes back), amber (look at the reason) or red (would be lost). */
export interface VerdictView {
  name: string;
  state: string;
  kind: string;
  size_bytes: number;
  seconds: number;
  reason: string;
}

/** Hours that were played twice: as it is, and with other budgets. */
export interface WhatIf {
  now_s: number;
  until_s: number;
  arrivals: number;
  protected: number;
  protections_kept: number;
  protected_preemptions: number;
  allocations: PlayedAllocation[];
}

/** A session or batch workload, as the service knows it now. */
export interface Workload {
  id: string;
  state: 'queued' | 'starting' | 'restoring' | 'running' | 'checkpointing' | 'stopping' | 'parked' | 'ended';
  name: string;
  kind: 'session' | 'batch';
  user: string;
  allocation: string;
  gpus: number;
  nodes: number;
  gpu_type: string;
  cpus: number;
  memory_bytes: number;
  within: string;
  exclude: string[];
  where: Record<string, string>;
  pools: string[];
  pool: string | null;
  min_runtime_s: number;
  resumable: boolean;
  movable: boolean;
  priority: number;
  expected_s: number | null;
  idle_release_s: number | null;
  submitted_s: number;
  incarnation: number;
  generation: number;
  starts: number;
  preemptions: number;
  leases: LeaseView[];
  devices: ([string, string])[];
  granted_s: number | null;
  protected_until_s: number | null;
  deadline_s: number | null;
  leaving: string | null;
  position: number | null;
  estimate_s: number | null;
  start_by_s: number | null;
  waits_for: string;
  attempt: number;
  retries: number;
  retry_at_s: number | null;
  timeout_s: number | null;
  after: string[];
  after_any: string[];
  reason: string;
  remark: string;
  busy: boolean;
  beneficiary: string | null;
  checkpoint: CheckpointView | null;
  lost: ([string, string])[];
  restore_offered: boolean;
  serving: boolean;
  kernel_died: boolean;
  outcome: 'completed' | 'failed' | 'cancelled' | 'timed out' | null;
  ended_s: number | null;
  charged_gpu_s: number;
  notebook: string;
  kernel_name: string;
  on_cpu: boolean;
  not_saved: NotSaved | null;
  move: MoveView | null;
  suggestion: SuggestionView | null;
  progress: ProgressView | null;
  utilization: UtilizationView | null;
  preflight: PreflightView | null;
  warnings?: string[];
}

/** Workloads in the order of submission. `next` is the `cursor` of the next page; null: there is none. Where `fields` were asked for, each has those alone. */
export interface Workloads {
  workloads: Workload[];
  next: string | null;
}

/** The allocation that got the least of what it was owed. */
export interface Worst {
  path: string;
  ratio: number | null;
}
