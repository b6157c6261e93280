//! One plan with concurrent actions: several users decide and edit steps through several surfaces,
//! deadlines pass, runs are cancelled, settings change, tools report, and the process crashes. In
//! every order, each step of the plan has exactly one outcome (G8, G10, G11, D2).

use crate::{
    rng::SeededRng,
    rules,
    session_simulation::{SessionSimulation, user},
};
use greenroom_core::{
    Rules,
    agent::AgentProfile,
    approval::{ApprovalDeadlines, DeadlineRule, PlanStep, PlanStepDecision, Role, Surface},
    call::CallFailureReason,
    ids::{ApprovalId, CallId, MessageId, ToolName, UserId},
    json::Digest,
    message::{Arguments, AssistantMessage, ProposedCall},
    model::{completion::Completion, delta::StopReason},
    policy::{Autonomy, Matrix, Settings},
    session::{
        ApprovalAnswer, CallAuthorization, Input, NewMessage, OnBusy, PlanStepAnswer, Reply,
        SessionEvent,
    },
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// Minimum number of cases, even if `PROPTEST_CASES` is smaller.
const INTERLEAVINGS_MIN: u32 = 1_200;
const USERS: [&str; 3] = ["ann", "bob", "cyd"];
const SURFACES: [Surface; 4] =
    [Surface::Rest, Surface::Websocket, Surface::Cli, Surface::Dashboard];

/// The outcome of a plan step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StepOutcome {
    Allowed,
    AllowedAsEdited,
    Rejected,
    Expired,
    Cancelled,
    Denied,
}

#[test]
fn g8_each_plan_step_has_exactly_one_outcome_in_every_interleaving() {
    let config = Config {
        cases: Config::default().cases.max(INTERLEAVINGS_MIN),
        rng_seed: RngSeed::Fixed(20_261_007),
        failure_persistence: None,
        ..Config::default()
    };
    let counts: RefCell<BTreeMap<StepOutcome, u32>> = RefCell::default();
    let simulations = (any::<u64>(), prop::collection::vec(any::<u64>(), 1..24));
    let result = TestRunner::new(config).run(&simulations, |(seed, actions)| {
        let mut counts = counts.borrow_mut();
        for outcome in simulate(seed, &actions) {
            *counts.entry(outcome).or_default() += 1;
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}"); // Contains the seed and the shortest failing list of actions.
    }
    let counts = counts.into_inner();
    // The test is meaningful only if every outcome occurs.
    assert_eq!(counts.len(), 6, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 50), "{counts:?}");
}

/// Decisions that were acknowledged to users.
type AcknowledgedAnswers = BTreeMap<CallId, (bool, UserId, Surface)>;

fn simulate(seed: u64, actions: &[u64]) -> Vec<StepOutcome> {
    let chance = &mut SeededRng::new(seed);
    let (mut simulation, plan_id, steps) = start_with_plan(seed, chance);
    let mut acknowledged = AcknowledgedAnswers::new();
    for entropy in actions {
        let chance = &mut SeededRng::new(*entropy);
        if chance.one_in(8) {
            simulation.schedule_crash(chance);
        }
        random_action(&mut simulation, plan_id, &steps, &mut acknowledged, chance);
        simulation.recover_if_crashed(chance);
        simulation.check();
    }
    // Undecided steps expire; then the simulation runs until the session is idle.
    let deadline =
        simulation.state.active.open_approval(plan_id).and_then(|open| open.deadline_action_at());
    simulation.now = simulation.now.max(deadline.unwrap_or(simulation.now));
    simulation.wake();
    simulation.run_to_idle(chance);
    let outcome =
        |step: &PlanStep| step_outcome(&simulation, plan_id, step, acknowledged.get(&step.call_id));
    steps.iter().map(outcome).collect()
}

/// Creates a session in which one plan of several steps waits for approval.
fn start_with_plan(
    seed: u64,
    chance: &mut SeededRng,
) -> (SessionSimulation, ApprovalId, Vec<PlanStep>) {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    let timing = DeadlineRule { timeout: Some(Duration::from_secs(60)), ..DeadlineRule::default() };
    agent.approval_deadlines = ApprovalDeadlines::uniform(timing);
    let tools = Arc::new(rules::build_registry(1, rules::ServerSet::All));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut simulation = SessionSimulation::with_rules(seed, rules);
    simulation.budget_limit = None;
    let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let (owner, agent) = (user("ann"), rules::agent_name());
    simulation
        .apply_input(Input::CreateSession { owner, agent, title: None, settings })
        .expect("the session is new");
    let message_id = MessageId::parse("u1").expect("the id is valid");
    let (text, digest) = ("go".into(), Digest::hash_bytes(b"go"));
    simulation
        .apply_input(Input::SubmitMessage {
            message: NewMessage::new(user("ann"), message_id, text, digest),
            on_busy: OnBusy::Queue,
        })
        .expect("the session is idle");
    let calls = (0..2 + chance.next_below(4)).map(|number| proposed_call(number, chance)).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::default() };
    let stop_reason = StopReason::ToolUse;
    let result = Ok(Completion { message, stop_reason, ..Completion::default() });
    let attempt_id = simulation.model_attempts.pop().expect("a model attempt was started");
    simulation
        .apply_input(Input::ModelFinished { attempt_id, result })
        .expect("facts are never rejected");
    let plan = simulation.state.active.approvals[0].approval.clone();
    (simulation, plan.approval_id, plan.steps().to_vec())
}

fn proposed_call(number: usize, chance: &mut SeededRng) -> ProposedCall {
    let tools = ["high", "high_again", "high_beside", "critical"];
    ProposedCall {
        call_id: CallId(Uuid::nil()),
        provider_id: format!("toolu_{number}"),
        tool: (*chance.pick(&tools)).to_owned(),
        arguments: Arguments::Json(json!({"n": number})),
    }
}

fn random_action(
    simulation: &mut SessionSimulation,
    plan_id: ApprovalId,
    steps: &[PlanStep],
    acknowledged: &mut AcknowledgedAnswers,
    chance: &mut SeededRng,
) {
    match chance.next_below(24) {
        0..12 => answer_randomly(simulation, plan_id, steps, acknowledged, chance),
        12..16 => simulation.finish_tool_attempt(chance),
        16..18 => {
            let seconds = *chance.pick(&[1, 20, 60]);
            simulation.now = simulation.now.saturating_add(Duration::from_secs(seconds));
            if chance.one_in(2) {
                simulation.wake();
            }
        }
        18 => {
            let result = simulation.apply_input(Input::CancelRun {
                run_id: None,
                by: user("ann"),
                partial: None,
            });
            drop(result); // Rejected if no run is active.
        }
        19 => simulation.crash(chance),
        20 | 21 => block_tool(simulation, chance),
        // Other approvals: unknown outcomes.
        _ => {
            let is_other = |open: &&greenroom_core::approval::OpenApproval| {
                open.approval.approval_id != plan_id
            };
            let other = simulation.state.active.approvals.iter().find(is_other).cloned();
            if let Some(open) = other {
                simulation.resolve_open_approval(&open, chance);
            }
        }
    }
}

/// Blocks a tool in the settings.
fn block_tool(simulation: &mut SessionSimulation, chance: &mut SeededRng) {
    let mut settings = (*simulation.state.active.settings).clone();
    let tools = ["high", "high_again", "high_beside", "critical"];
    let tool = ToolName::parse(tools[chance.next_below(tools.len())]).expect("the name is valid");
    settings.blocked_tools.insert(tool);
    simulation
        .apply_input(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .expect("the session is open");
}

fn answer_randomly(
    simulation: &mut SessionSimulation,
    approval_id: ApprovalId,
    steps: &[PlanStep],
    acknowledged: &mut AcknowledgedAnswers,
    chance: &mut SeededRng,
) {
    let by = user(USERS[chance.next_below(USERS.len())]);
    let surface = *chance.pick(&SURFACES);
    let answer = if chance.one_in(5) {
        ApprovalAnswer::Overall { approved: chance.one_in(2), reason: None }
    } else {
        let count = 1 + chance.next_below(2);
        let first = chance.next_below(steps.len());
        let chosen = steps.iter().cycle().skip(first).take(count.min(steps.len()));
        ApprovalAnswer::Steps(chosen.map(|step| random_step_answer(step, chance)).collect())
    };
    let is_undecided = |call_id: &CallId| !acknowledged.contains_key(call_id);
    let approves: Vec<_> = match &answer {
        ApprovalAnswer::Overall { approved, .. } => {
            steps.iter().map(|step| (step.call_id, *approved)).collect()
        }
        ApprovalAnswer::Steps(answers) => {
            answers.iter().map(|answer| (answer.call_id, answer.approved)).collect()
        }
        ApprovalAnswer::Resolve { .. } => Vec::new(),
    };
    let role = Role::User;
    let input = Input::AnswerApproval {
        approval_id,
        answer,
        for_session: None,
        by: by.clone(),
        role,
        surface,
    };
    let Ok(decision) = simulation.apply_input(input) else { return };
    // A decision that was lost in a crash was not acknowledged.
    if !simulation.is_decision_lost()
        && matches!(decision.reply, Reply::Answered { repeated: false, .. })
    {
        let new = approves.into_iter().filter(|(call_id, _)| is_undecided(call_id));
        let new: Vec<_> = new.collect();
        acknowledged.extend(
            new.into_iter().map(|(call_id, approved)| (call_id, (approved, by.clone(), surface))),
        );
    }
}

fn random_step_answer(step: &PlanStep, chance: &mut SeededRng) -> PlanStepAnswer {
    let approved = !chance.one_in(3);
    let arguments = match chance.next_below(4) {
        0 => Some(json!({"n": 100 + chance.next_below(3)})),
        1 => Some(step.arguments.clone()),
        _ => None,
    };
    let arguments: Option<Value> = arguments.filter(|_| approved);
    PlanStepAnswer { call_id: step.call_id, approved, reason: None, arguments }
}

/// Returns the outcome of `step` according to the log. Panics if it has none, or more than one.
fn step_outcome(
    simulation: &SessionSimulation,
    plan_id: ApprovalId,
    step: &PlanStep,
    acknowledged: Option<&(bool, UserId, Surface)>,
) -> StepOutcome {
    let StepLog { decisions, allowed, ends, is_expired } =
        StepLog::from_log(simulation, plan_id, step.call_id);
    let [end] = &ends[..] else { panic!("{} ends: {ends:?}", ends.len()) };
    assert!(decisions.len() <= 1, "G8: decided {} times: {decisions:?}", decisions.len());
    assert!(allowed.len() <= 1, "G8: allowed {} times", allowed.len());
    let decision = decisions.first();
    let logged =
        decision.map(|decision| (decision.approved, decision.by.clone(), decision.surface));
    assert_eq!(logged.as_ref(), acknowledged, "G11: log and acknowledged decisions differ");
    match (decision, allowed.first(), end) {
        (Some(decision), Some(digest), _) => {
            assert!(decision.approved, "G8: allowed a rejected step");
            assert_eq!(decision.digest, *digest, "G8: allowed with other arguments than approved");
            let approved = decision.edited.as_ref().unwrap_or(&step.arguments);
            assert_eq!(Digest::hash_json(approved), *digest);
            let is_edited = decision.edited.is_some();
            if is_edited { StepOutcome::AllowedAsEdited } else { StepOutcome::Allowed }
        }
        (Some(decision), None, CallEnd::Failed(CallFailureReason::Rejected))
            if !decision.approved =>
        {
            StepOutcome::Rejected
        }
        (Some(decision), None, CallEnd::Denied) if decision.approved => StepOutcome::Denied,
        (None, None, CallEnd::Failed(CallFailureReason::Expired)) if is_expired => {
            StepOutcome::Expired
        }
        (None, None, CallEnd::Failed(CallFailureReason::Cancelled)) if !is_expired => {
            StepOutcome::Cancelled
        }
        other => panic!("no outcome, or more than one: {other:?}, expired: {is_expired}"),
    }
}

#[derive(Debug)]
enum CallEnd {
    Completed,
    Failed(CallFailureReason),
    Denied,
}

/// The log entries of one plan step.
struct StepLog {
    decisions: Vec<PlanStepDecision>,
    /// Digests of the arguments with which the plan's approval allowed the call.
    allowed: Vec<Digest>,
    ends: Vec<CallEnd>,
    is_expired: bool,
}

impl StepLog {
    fn from_log(simulation: &SessionSimulation, plan_id: ApprovalId, step_call_id: CallId) -> Self {
        use SessionEvent as E;
        let (mut decisions, mut allowed, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_expired = false;
        for record in &simulation.log {
            if let E::ApprovalDecided { approval_id, steps, .. } = &record.event {
                assert!(steps.is_empty() || *approval_id == plan_id);
                let matching = steps.iter().filter(|step| step.call_id == step_call_id);
                decisions.extend(matching.cloned());
            }
            if let E::ToolCallAllowed { call_id, digest, by, .. } = &record.event
                && *call_id == step_call_id
            {
                let CallAuthorization::Approval { approval_id, .. } = by else { panic!("{by:?}") };
                if *approval_id == plan_id {
                    allowed.push(*digest);
                }
            }
            if let E::ApprovalExpired { approval_id } = &record.event {
                is_expired |= *approval_id == plan_id;
            }
            if let E::ToolCallCompleted { call_id, .. } = &record.event
                && *call_id == step_call_id
            {
                ends.push(CallEnd::Completed);
            }
            if let E::ToolCallFailed { call_id, reason, .. } = &record.event
                && *call_id == step_call_id
            {
                ends.push(CallEnd::Failed(*reason));
            }
            if let E::AuthorizationDenied { call_id, .. } = &record.event
                && *call_id == step_call_id
            {
                ends.push(CallEnd::Denied);
            }
        }
        Self { decisions, allowed, ends, is_expired }
    }
}
