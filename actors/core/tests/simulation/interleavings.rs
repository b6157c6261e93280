//! One plan, and everybody at once: people who decide and edit steps through several surfaces,
//! deadlines, cancels, changed settings, tools that answer, and a process that dies anywhere. In
//! whatever order it comes, each step of the plan has exactly one outcome (G8, G10, G11, D2).

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
    usage::TokenUsage,
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::{Value, json};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// So many at least, however few cases other properties draw.
const INTERLEAVINGS_MIN: u32 = 1_200;
const USERS: [&str; 3] = ["ann", "bob", "cyd"];
const SURFACES: [Surface; 4] =
    [Surface::Rest, Surface::Websocket, Surface::Cli, Surface::Dashboard];

/// What became of a step.
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
fn g8_each_step_of_a_plan_has_exactly_one_outcome_in_every_interleaving() {
    let config = Config {
        cases: Config::default().cases.max(INTERLEAVINGS_MIN),
        rng_seed: RngSeed::Fixed(20_261_007),
        failure_persistence: None,
        ..Config::default()
    };
    let seen: RefCell<BTreeMap<StepOutcome, u32>> = RefCell::default();
    let lives = (any::<u64>(), prop::collection::vec(any::<u64>(), 1..24));
    let run = TestRunner::new(config).run(&lives, |(seed, moves)| {
        let mut seen = seen.borrow_mut();
        for outcome in simulate(seed, &moves) {
            *seen.entry(outcome).or_default() += 1;
        }
        Ok(())
    });
    if let Err(broken) = run {
        panic!("{broken}"); // Names the seed and the shortest list of moves.
    }
    let seen = seen.into_inner();
    // A test in which nobody ever edits or nothing ever expires would show nothing.
    assert_eq!(seen.len(), 6, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 50), "{seen:?}");
}

/// What people were told that they decided.
type AcknowledgedAnswers = BTreeMap<CallId, (bool, UserId, Surface)>;

fn simulate(seed: u64, moves: &[u64]) -> Vec<StepOutcome> {
    let chance = &mut SeededRng::new(seed);
    let (mut world, plan_id, steps) = start_with_plan(seed, chance);
    let mut told = AcknowledgedAnswers::new();
    for entropy in moves {
        let chance = &mut SeededRng::new(*entropy);
        if chance.one_in(8) {
            world.schedule_crash(chance);
        }
        random_action(&mut world, plan_id, &steps, &mut told, chance);
        world.recover_if_crashed(chance);
        world.check();
    }
    // What nobody decided expires; then whatever else is open comes to its end.
    let deadline = world.state.active.open_approval(plan_id).and_then(|open| open.due_at());
    world.now = world.now.max(deadline.unwrap_or(world.now));
    world.wake();
    world.run_to_idle(chance);
    steps.iter().map(|step| step_outcome(&world, plan_id, step, told.get(&step.call_id))).collect()
}

/// A world in which one plan of several steps waits.
fn start_with_plan(
    seed: u64,
    chance: &mut SeededRng,
) -> (SessionSimulation, ApprovalId, Vec<PlanStep>) {
    let mut agent = AgentProfile::new(rules::agent_name());
    agent.models = vec!["small".to_owned()];
    let timing = DeadlineRule { timeout: Some(Duration::from_secs(60)), ..DeadlineRule::default() };
    agent.approval_deadlines = ApprovalDeadlines::uniform(timing);
    let tools = Arc::new(rules::build_registry(1, false));
    let rules = Rules::new(Arc::new(agent), Arc::new(Matrix::default()), tools);
    let mut world = SessionSimulation::with_rules(seed, rules);
    world.budget_limit = None;
    let settings = Settings { autonomy_level: Autonomy::Assisted, ..Settings::default() };
    let (owner, agent) = (user("ann"), rules::agent_name());
    world
        .apply_input(Input::CreateSession { owner, agent, title: None, settings })
        .expect("it is new");
    let message_id = MessageId::parse("u1").expect("it is short");
    let (text, digest) = ("go".into(), Digest::hash_bytes(b"go"));
    world
        .apply_input(Input::SubmitMessage {
            message: NewMessage::new(message_id, text, digest),
            on_busy: OnBusy::Queue,
        })
        .expect("it is idle");
    let calls = (0..2 + chance.below(4)).map(|number| proposed(number, chance)).collect();
    let message = AssistantMessage { calls, ..AssistantMessage::default() };
    let stop_reason = StopReason::ToolUse;
    let result = Ok(Completion { message, usage: TokenUsage::default(), stop_reason });
    let attempt_id = world.model_attempts.pop().expect("the model was asked");
    world
        .apply_input(Input::ModelFinished { attempt_id, result })
        .expect("facts are never refused");
    let plan = world.state.active.approvals[0].approval.clone();
    (world, plan.approval_id, plan.steps().to_vec())
}

fn proposed(number: usize, chance: &mut SeededRng) -> ProposedCall {
    let tools = ["high", "high_again", "high_beside", "critical"];
    ProposedCall {
        call_id: CallId(Uuid::nil()),
        provider_id: format!("toolu_{number}"),
        tool: (*chance.pick(&tools)).to_owned(),
        arguments: Arguments::Json(json!({"n": number})),
    }
}

fn random_action(
    world: &mut SessionSimulation,
    plan_id: ApprovalId,
    steps: &[PlanStep],
    told: &mut AcknowledgedAnswers,
    chance: &mut SeededRng,
) {
    match chance.below(24) {
        0..12 => answer_randomly(world, plan_id, steps, told, chance),
        12..16 => world.finish_tool_attempt(chance),
        16..18 => {
            let seconds = *chance.pick(&[1, 20, 60]);
            world.now = world.now.saturating_add(Duration::from_secs(seconds));
            if chance.one_in(2) {
                world.wake();
            }
        }
        18 => {
            let cancelled = world.apply_input(Input::CancelRun {
                run_id: None,
                by: user("ann"),
                partial: None,
            });
            drop(cancelled); // Refused where nothing runs any more.
        }
        19 => world.crash(chance),
        20 | 21 => block(world, chance),
        // What else is asked meanwhile: unknown outcomes.
        _ => {
            let other = |open: &&greenroom_core::approval::OpenApproval| {
                open.approval.approval_id != plan_id
            };
            let other = world.state.active.approvals.iter().find(other).cloned();
            if let Some(open) = other {
                world.resolve_open_approval(&open, chance);
            }
        }
    }
}

/// Somebody blocks a tool while others decide.
fn block(world: &mut SessionSimulation, chance: &mut SeededRng) {
    let mut settings = (*world.state.active.settings).clone();
    let tools = ["high", "high_again", "high_beside", "critical"];
    let tool = ToolName::parse(tools[chance.below(tools.len())]).expect("it is short");
    settings.blocked_tools.insert(tool);
    world
        .apply_input(Input::ChangeSettings { patch: settings.into(), title: None, by: user("ann") })
        .expect("the session is open");
}

fn answer_randomly(
    world: &mut SessionSimulation,
    approval_id: ApprovalId,
    steps: &[PlanStep],
    told: &mut AcknowledgedAnswers,
    chance: &mut SeededRng,
) {
    let by = user(USERS[chance.below(USERS.len())]);
    let surface = *chance.pick(&SURFACES);
    let answer = if chance.one_in(5) {
        ApprovalAnswer::Overall { approved: chance.one_in(2), reason: None }
    } else {
        let count = 1 + chance.below(2);
        let first = chance.below(steps.len());
        let chosen = steps.iter().cycle().skip(first).take(count.min(steps.len()));
        ApprovalAnswer::Steps(chosen.map(|step| random_step_answer(step, chance)).collect())
    };
    let undecided = |call_id: &CallId| !told.contains_key(call_id);
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
    let Ok(decision) = world.apply_input(input) else { return };
    // Where the process died before the commit nobody was told anything.
    if !world.is_decision_lost()
        && matches!(decision.reply, Reply::Answered { repeated: false, .. })
    {
        let fresh = approves.into_iter().filter(|(call_id, _)| undecided(call_id));
        let fresh: Vec<_> = fresh.collect();
        told.extend(fresh.into_iter().map(|(call_id, yes)| (call_id, (yes, by.clone(), surface))));
    }
}

fn random_step_answer(step: &PlanStep, chance: &mut SeededRng) -> PlanStepAnswer {
    let approved = !chance.one_in(3);
    let arguments = match chance.below(4) {
        0 => Some(json!({"n": 100 + chance.below(3)})),
        1 => Some(step.arguments.clone()),
        _ => None,
    };
    let arguments: Option<Value> = arguments.filter(|_| approved);
    PlanStepAnswer { call_id: step.call_id, approved, reason: None, arguments }
}

/// The one outcome of the step, as the log tells it; panics where it tells of none, or of two.
fn step_outcome(
    world: &SessionSimulation,
    plan_id: ApprovalId,
    step: &PlanStep,
    told: Option<&(bool, UserId, Surface)>,
) -> StepOutcome {
    let StepLog { decisions, allowed, ends, is_expired } =
        StepLog::from_log(world, plan_id, step.call_id);
    let [end] = &ends[..] else { panic!("{} ends: {ends:?}", ends.len()) };
    assert!(decisions.len() <= 1, "G8: decided {} times: {decisions:?}", decisions.len());
    assert!(allowed.len() <= 1, "G8: allowed {} times", allowed.len());
    let said = decisions.first();
    let said_so = said.map(|said| (said.approved, said.by.clone(), said.surface));
    assert_eq!(said_so.as_ref(), told, "G11: the log says otherwise than people were told");
    match (said, allowed.first(), end) {
        (Some(said), Some(digest), _) => {
            assert!(said.approved, "G8: allowed what a person rejected");
            assert_eq!(said.digest, *digest, "G8: allowed with other arguments than approved");
            let approved = said.edited.as_ref().unwrap_or(&step.arguments);
            assert_eq!(Digest::hash_json(approved), *digest);
            let is_edited = said.edited.is_some();
            if is_edited { StepOutcome::AllowedAsEdited } else { StepOutcome::Allowed }
        }
        (Some(said), None, CallEnd::Failed(CallFailureReason::Rejected)) if !said.approved => {
            StepOutcome::Rejected
        }
        (Some(said), None, CallEnd::Denied) if said.approved => StepOutcome::Denied,
        (None, None, CallEnd::Failed(CallFailureReason::Expired)) if is_expired => {
            StepOutcome::Expired
        }
        (None, None, CallEnd::Failed(CallFailureReason::Cancelled)) if !is_expired => {
            StepOutcome::Cancelled
        }
        other => panic!("no outcome, or two: {other:?}, expired: {is_expired}"),
    }
}

#[derive(Debug)]
enum CallEnd {
    Completed,
    Failed(CallFailureReason),
    Denied,
}

/// What the log tells of one step.
struct StepLog {
    decisions: Vec<PlanStepDecision>,
    /// The digests it was allowed with by the plan.
    allowed: Vec<Digest>,
    ends: Vec<CallEnd>,
    is_expired: bool,
}

impl StepLog {
    fn from_log(world: &SessionSimulation, plan_id: ApprovalId, of: CallId) -> Self {
        use SessionEvent as E;
        let (mut decisions, mut allowed, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_expired = false;
        for record in &world.log {
            if let E::ApprovalDecided { approval_id, steps, .. } = &record.event {
                assert!(steps.is_empty() || *approval_id == plan_id);
                decisions.extend(steps.iter().filter(|step| step.call_id == of).cloned());
            }
            if let E::ToolCallAllowed { call_id, digest, by, .. } = &record.event
                && *call_id == of
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
                && *call_id == of
            {
                ends.push(CallEnd::Completed);
            }
            if let E::ToolCallFailed { call_id, reason, .. } = &record.event
                && *call_id == of
            {
                ends.push(CallEnd::Failed(*reason));
            }
            if let E::AuthorizationDenied { call_id, .. } = &record.event
                && *call_id == of
            {
                ends.push(CallEnd::Denied);
            }
        }
        Self { decisions, allowed, ends, is_expired }
    }
}
