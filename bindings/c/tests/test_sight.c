/* Seeing what happens: counts, agents, offenders, events, lines for a log. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static rig watched(uint64_t roster, uint32_t sample_every)
{
    rig made = { NULL, rig_policy(), NULL };
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_TIME_SOURCE_MANUAL, &made.clock));
    REQUIRE_OK(tollgate_clock_set(made.clock, NOW));
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.sight = TOLLGATE_SIGHT_ON;
    options.roster = roster;
    options.sample_every = sample_every;
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, &made.limiter));
    return made;
}

static void ask(tollgate_limiter *limiter, const char *id, uint32_t lane, uint64_t cost)
{
    tollgate_admission admission = admission_new();
    REQUIRE_OK(tollgate_limiter_admit(limiter, id, strlen(id), lane, cost, &admission));
}

static tollgate_snapshot snapshot_new(void)
{
    tollgate_snapshot snapshot;
    memset(&snapshot, 0, sizeof snapshot);
    snapshot.struct_size = sizeof snapshot;
    return snapshot;
}

static tollgate_agent_view agent_view_new(void)
{
    tollgate_agent_view view;
    memset(&view, 0, sizeof view);
    view.struct_size = sizeof view;
    return view;
}

static tollgate_event event_new(void)
{
    tollgate_event event;
    memset(&event, 0, sizeof event);
    event.struct_size = sizeof event;
    return event;
}

static void a_snapshot_counts_verdicts_by_lane(void)
{
    rig made = watched(0, 0);
    ask(made.limiter, ID, LIGHT, 1);
    ask(made.limiter, ID, HEAVY, 3); /* Near its limit: a warning. */
    ask(made.limiter, ID, HEAVY, 1); /* A denial, and a violation. */
    REQUIRE_OK(tollgate_limiter_exempt(made.limiter, "b", 1, NULL));
    REQUIRE_OK(tollgate_limiter_assign(made.limiter, "c", 1, 0, NULL));
    ask(made.limiter, "b", HEAVY, 1);
    tollgate_verdict verdict = verdict_new();
    EXPECT_EQ(tollgate_limiter_check(made.limiter, ID, ID_LEN, HEAVY, 0, &verdict), TOLLGATE_STATUS_ZERO_COST);

    tollgate_snapshot snapshot = snapshot_new();
    tollgate_lane_counts lanes[LANES];
    size_t count = 77;
    EXPECT_OK(tollgate_limiter_snapshot(made.limiter, &snapshot, lanes, LANES, &count));
    EXPECT_EQ(count, LANES);
    EXPECT_EQ(snapshot.counting, 1);
    EXPECT_EQ(snapshot.at_ns, NOW);
    EXPECT_EQ(snapshot.allowed, 1);
    EXPECT_EQ(snapshot.warned, 1);
    EXPECT_EQ(snapshot.denied, 1);
    EXPECT_EQ(snapshot.exempt, 1);
    EXPECT_EQ(snapshot.errors, 1);
    EXPECT_EQ(snapshot.full, 0);
    EXPECT_EQ(snapshot.violations, 1);
    EXPECT_EQ(snapshot.violations_last_hour, 1);
    EXPECT_EQ(snapshot.sustained_abuse, 0);
    EXPECT_EQ(snapshot.agents, snapshot.claims);
    EXPECT(snapshot.records >= 100);
    EXPECT_EQ(snapshot.agents_assigned, 2);
    EXPECT_EQ(snapshot.agents_overridden, 0);
    EXPECT_EQ(snapshot.agents_exempt, 1);
    EXPECT_EQ(snapshot.events_dropped | snapshot.clock_fallbacks | snapshot.unknown_actions, 0);
    EXPECT_EQ(snapshot.clock_source, TOLLGATE_TIME_SOURCE_MANUAL);
    EXPECT_EQ(lanes[LIGHT].allowed, 1);
    EXPECT_EQ(lanes[HEAVY].warned, 1);
    EXPECT_EQ(lanes[HEAVY].denied, 1);
    EXPECT_EQ(lanes[HEAVY].exempt, 1);
    EXPECT_EQ(lanes[CLOSED].denied, 0);

    EXPECT_OK(tollgate_limiter_snapshot(made.limiter, &snapshot, NULL, 0, &count));
    snapshot = snapshot_new();
    count = 77;
    EXPECT_EQ(tollgate_limiter_snapshot(made.limiter, &snapshot, lanes, LANES - 1, &count), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_limiter_snapshot(made.limiter, &snapshot, NULL, 1, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_snapshot(made.limiter, &snapshot, lanes, LANES, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_snapshot(made.limiter, NULL, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_snapshot(NULL, &snapshot, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    snapshot.struct_size--;
    EXPECT_EQ(tollgate_limiter_snapshot(made.limiter, &snapshot, lanes, LANES, &count), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(count == 77 && snapshot.records == 0);
    rig_free(&made);

    made = rig_new(100, TOLLGATE_ON_FULL_DENY); /* Without it, only what the limiter holds. */
    ask(made.limiter, ID, LIGHT, 1);
    snapshot = snapshot_new();
    EXPECT_OK(tollgate_limiter_snapshot(made.limiter, &snapshot, NULL, 0, &count));
    EXPECT_EQ(snapshot.counting | snapshot.allowed, 0);
    EXPECT_EQ(snapshot.agents, 1);
    rig_free(&made);
}

static void an_agent_is_seen_as_it_stands(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    ask(made.limiter, ID, LIGHT, 30);
    ask(made.limiter, ID, HEAVY, 3);
    ask(made.limiter, ID, HEAVY, 1);
    REQUIRE_OK(tollgate_limiter_assign(made.limiter, ID, ID_LEN, 0, NULL));
    REQUIRE_OK(tollgate_limiter_set_override(made.limiter, ID, ID_LEN, "light", 5, "60/minute", 9, NULL));
    tollgate_agent_view view = agent_view_new();
    tollgate_lane_view lanes[LANES];
    size_t count = 77;
    EXPECT_OK(tollgate_limiter_agent(made.limiter, ID, ID_LEN, &view, lanes, LANES, &count));
    EXPECT_EQ(count, LANES);
    EXPECT_EQ(view.known, 1);
    EXPECT_EQ(view.exempt, 0);
    EXPECT_EQ(view.plan, 0);
    EXPECT_EQ(view.dominant_lane, HEAVY);
    EXPECT_EQ(view.rate_limited, 1);
    EXPECT_EQ(view.violations, 1);
    EXPECT_EQ(view.consecutive, 1);
    EXPECT_EQ(view.at_ns, NOW);
    EXPECT_EQ(view.last_violation_ns, NOW);
    EXPECT_EQ(view.wait_ns, SECOND);
    EXPECT_EQ(lanes[LIGHT].overridden, 1);
    EXPECT_EQ(lanes[LIGHT].capacity, 60);
    EXPECT_EQ(lanes[HEAVY].remaining, 0);
    EXPECT_EQ(lanes[HEAVY].level, TOLLGATE_USAGE_LEVEL_RED);
    EXPECT_EQ((int)lanes[HEAVY].usage_percent, 100);
    EXPECT_EQ(lanes[HEAVY].full_in_ns, 18 * SECOND);
    EXPECT_EQ(lanes[HEAVY].next_in_ns, 6 * SECOND);
    EXPECT_EQ(lanes[CLOSED].next_in_ns, TOLLGATE_NEVER);
    EXPECT_OK(tollgate_limiter_agent_at(made.limiter, ID, ID_LEN, NOW + 6 * SECOND, &view, lanes, LANES, &count));
    EXPECT_EQ(lanes[HEAVY].remaining, 1);
    EXPECT_EQ(lanes[HEAVY].level, TOLLGATE_USAGE_LEVEL_YELLOW);

    EXPECT_OK(tollgate_limiter_agent(made.limiter, "stranger", 8, &view, lanes, LANES, &count));
    EXPECT_EQ(view.known | view.rate_limited | view.violations, 0);
    EXPECT_EQ(view.plan, TOLLGATE_NONE);
    EXPECT_EQ(view.last_violation_ns, TOLLGATE_NEVER);
    EXPECT_EQ(lanes[LIGHT].level, TOLLGATE_USAGE_LEVEL_GREEN);
    REQUIRE_OK(tollgate_limiter_exempt(made.limiter, "b", 1, NULL));
    EXPECT_OK(tollgate_limiter_agent(made.limiter, "b", 1, &view, NULL, 0, &count));
    EXPECT_EQ(view.exempt, 1);
    EXPECT_EQ(view.dominant_lane, TOLLGATE_NONE);

    view = agent_view_new();
    count = 77;
    EXPECT_EQ(tollgate_limiter_agent(NULL, ID, ID_LEN, &view, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, NULL, 1, &view, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, ID, 0, &view, lanes, LANES, &count), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, ID, 257, &view, lanes, LANES, &count), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, ID, ID_LEN, NULL, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, ID, ID_LEN, &view, lanes, 1, &count), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_limiter_agent_at(made.limiter, ID, ID_LEN, NOW, &view, lanes, LANES, NULL), TOLLGATE_STATUS_NULL_POINTER);
    view.struct_size--;
    EXPECT_EQ(tollgate_limiter_agent(made.limiter, ID, ID_LEN, &view, lanes, LANES, &count), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(count == 77 && view.at_ns == 0);
    rig_free(&made);
}

static void agents_on_the_roster_are_listed(void)
{
    rig made = watched(1000, 0);
    ask(made.limiter, "user:1", HEAVY, 1);
    ask(made.limiter, "user:2", HEAVY, 3);
    ask(made.limiter, "ip:10", HEAVY, 2);
    tollgate_agent_query query;
    memset(&query, 0, sizeof query);
    query.struct_size = sizeof query;
    query.sort = TOLLGATE_AGENT_SORT_USAGE;
    query.prefix = "user:";
    query.prefix_len = 5;
    query.per_page = 1;
    tollgate_agent_page *page = NULL;
    REQUIRE_OK(tollgate_limiter_agents(made.limiter, &query, &page));
    size_t count = 0, len = 77;
    uint64_t matched = 0, not_listed = 77;
    char id[TOLLGATE_ID_BYTES_MAX] = "?";
    EXPECT_OK(tollgate_agent_page_count(page, &count));
    EXPECT_EQ(count, 1);
    EXPECT_OK(tollgate_agent_page_matched(page, &matched));
    EXPECT_EQ(matched, 2);
    EXPECT_OK(tollgate_agent_page_not_listed(page, &not_listed));
    EXPECT_EQ(not_listed, 0);
    EXPECT_EQ(tollgate_agent_page_id(page, 0, id, 5, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_agent_page_id(page, 1, id, sizeof id, &len), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT(id[0] == '?' && len == 77);
    EXPECT_OK(tollgate_agent_page_id(page, 0, id, sizeof id, &len));
    EXPECT(len == 6 && memcmp(id, "user:2", 6) == 0);
    tollgate_agent_view view = agent_view_new();
    tollgate_lane_view lanes[LANES];
    EXPECT_EQ(tollgate_agent_page_agent(page, 1, &view, lanes, LANES, &count), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_agent_page_agent(page, 0, NULL, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent_page_agent(NULL, 0, &view, lanes, LANES, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_OK(tollgate_agent_page_agent(page, 0, &view, lanes, LANES, &count));
    EXPECT_EQ(view.dominant_lane, HEAVY);
    EXPECT_EQ(lanes[HEAVY].remaining, 0);
    tollgate_agent_page_free(page);

    query.page = 1;
    REQUIRE_OK(tollgate_limiter_agents(made.limiter, &query, &page));
    EXPECT_OK(tollgate_agent_page_id(page, 0, id, sizeof id, &len));
    EXPECT_EQ(memcmp(id, "user:1", 6), 0);
    tollgate_agent_page_free(page);
    query.sort = TOLLGATE_AGENT_SORT_VIOLATIONS;
    query.page = query.per_page = 0;
    query.prefix = NULL;
    query.part = "10";
    query.part_len = 2;
    REQUIRE_OK(tollgate_limiter_agents(made.limiter, &query, &page));
    EXPECT_OK(tollgate_agent_page_matched(page, &matched));
    EXPECT_EQ(matched, 1);
    tollgate_agent_page_free(page);
    REQUIRE_OK(tollgate_limiter_agents(made.limiter, NULL, &page)); /* All, by id. */
    EXPECT_OK(tollgate_agent_page_count(page, &count));
    EXPECT_EQ(count, 3);
    EXPECT_OK(tollgate_agent_page_id(page, 0, id, sizeof id, &len));
    EXPECT_EQ(memcmp(id, "ip:10", 5), 0);

    tollgate_agent_page *none = NULL;
    EXPECT_EQ(tollgate_agent_page_count(NULL, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent_page_count(page, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent_page_matched(NULL, &matched), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent_page_not_listed(page, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent_page_id(NULL, 0, id, sizeof id, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_agents(NULL, NULL, &none), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_agents(made.limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    query.sort = 3;
    EXPECT_EQ(tollgate_limiter_agents(made.limiter, &query, &none), TOLLGATE_STATUS_INVALID_OPTION);
    query.sort = 0;
    query.part_len = 257;
    EXPECT_EQ(tollgate_limiter_agents(made.limiter, &query, &none), TOLLGATE_STATUS_ID_TOO_LONG);
    query.struct_size--;
    EXPECT_EQ(tollgate_limiter_agents(made.limiter, &query, &none), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(none == NULL);
    tollgate_agent_page_free(page);
    tollgate_agent_page_free(NULL);
    rig_free(&made);
}

static void an_operator_reads_a_document(void)
{
    rig made = watched(0, 0);
    char json[16384] = "?";
    size_t len = 77, same = 77;
    EXPECT_EQ(tollgate_limiter_status_document(made.limiter, json, 2, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_limiter_status_document(NULL, json, sizeof json, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_status_document(made.limiter, json, sizeof json, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(json[0] == '?' && len == 77);
    EXPECT_OK(tollgate_limiter_status_document(made.limiter, NULL, 0, &len));
    EXPECT_OK(tollgate_limiter_status_document(made.limiter, json, sizeof json, &same));
    EXPECT(json[0] == '{' && strlen(json) == same && len > 100);
    rig_free(&made);
}

static void the_worst_offenders_come_first(void)
{
    rig made = watched(0, 0);
    for (int i = 0; i < 3; i++)
        ask(made.limiter, "bad", CLOSED, 1);
    for (int i = 0; i < 5; i++)
        ask(made.limiter, "worse", CLOSED, 1);
    tollgate_offenders *offenders = NULL, *none = NULL;
    REQUIRE_OK(tollgate_limiter_top_offenders(made.limiter, 10, &offenders));
    size_t count = 0, len = 77;
    uint64_t total = 0, violations = 77, error = 77;
    char id[TOLLGATE_ID_BYTES_MAX] = "?";
    EXPECT_OK(tollgate_offenders_count(offenders, &count));
    EXPECT_EQ(count, 2);
    EXPECT_OK(tollgate_offenders_total(offenders, &total));
    EXPECT_EQ(total, 8);
    EXPECT_EQ(tollgate_offenders_violations(offenders, 2, &violations, &error), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_offenders_violations(offenders, 0, NULL, &error), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_offenders_violations(offenders, 0, &violations, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_offenders_id(offenders, 2, id, sizeof id, &len), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_EQ(tollgate_offenders_id(offenders, 0, id, 4, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT(violations == 77 && error == 77 && len == 77 && id[0] == '?');
    EXPECT_OK(tollgate_offenders_violations(offenders, 0, &violations, &error));
    EXPECT_EQ(violations, 5);
    EXPECT_EQ(error, 0);
    EXPECT_OK(tollgate_offenders_id(offenders, 0, id, sizeof id, &len));
    EXPECT(len == 5 && memcmp(id, "worse", 5) == 0);
    EXPECT_EQ(tollgate_offenders_count(NULL, &count), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_offenders_total(NULL, &total), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_offenders_id(NULL, 0, id, sizeof id, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_top_offenders(NULL, 1, &none), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_top_offenders(made.limiter, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(none == NULL);
    tollgate_offenders_free(offenders);
    tollgate_offenders_free(NULL);
    rig_free(&made);
}

static void events_are_polled_in_order(void)
{
    rig made = watched(0, 1);
    tollgate_event event = event_new();
    bool polled = true;
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT_EQ(polled, false);
    EXPECT_EQ(event.at_ns, 0);
    ask(made.limiter, "a\xff", HEAVY, 1);
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT(polled && event.kind == TOLLGATE_EVENT_TYPE_CHECKED && event.lane == HEAVY && event.remaining == 2);
    EXPECT(event.decision == TOLLGATE_DECISION_ALLOW && event.agent_len == 2 && memcmp(event.agent, "a\xff", 2) == 0);
    EXPECT_EQ(event.number, 0);
    EXPECT_EQ(event.at_ns, NOW);
    EXPECT_EQ(event.struct_size, sizeof event);
    REQUIRE_OK(tollgate_limiter_exempt(made.limiter, ID, ID_LEN, NULL));
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_ASSIGNMENT_CHANGED && event.agent_len == ID_LEN && event.lane == 0);
    REQUIRE_OK(tollgate_limiter_replace_policy(made.limiter, made.policy, NULL));
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT_EQ(event.kind, TOLLGATE_EVENT_TYPE_POLICY_REPLACED);
    tollgate_violation violation = violation_new();
    for (int i = 0; i < 10; i++)
        EXPECT_OK(tollgate_limiter_record_violation(made.limiter, "b", 1, &violation));
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_SUSTAINED_ABUSE && event.consecutive == 10 && event.agent[0] == 'b');
    rig_free(&made);

    tollgate_limiter_options options = rig_options(1, TOLLGATE_ON_FULL_DENY, NULL);
    options.sight = TOLLGATE_SIGHT_ON;
    made = (rig){ NULL, preset("hub"), NULL };
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, &made.limiter));
    tollgate_action_lane lane = action_lane_new();
    EXPECT_OK(tollgate_limiter_lane_for(made.limiter, "ws", 2, "dance", 5, &lane));
    EXPECT_OK(tollgate_limiter_poll_event(made.limiter, &event, &polled));
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION && strcmp(event.channel, "ws") == 0);
    EXPECT(strcmp(event.action, "dance") == 0 && event.agent_len == 0);

    event = event_new();
    polled = true;
    EXPECT_EQ(tollgate_limiter_poll_event(NULL, &event, &polled), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_poll_event(made.limiter, NULL, &polled), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_poll_event(made.limiter, &event, NULL), TOLLGATE_STATUS_NULL_POINTER);
    event.struct_size--;
    EXPECT_EQ(tollgate_limiter_poll_event(made.limiter, &event, &polled), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(polled && event.number == 0);
    rig_free(&made);
}

static void a_log_has_few_lines_of_many_denials(void)
{
    tollgate_log_throttle *log = NULL;
    bool line = false;
    size_t lines = 77, len = 77;
    REQUIRE_OK(tollgate_log_throttle_new(&log));
    for (int i = 0; i < 48; i++) {
        EXPECT_OK(tollgate_log_throttle_denied(log, ID, ID_LEN, NOW, &line));
        EXPECT_EQ(line, i == 0);
    }
    EXPECT_TEXT("INFO: Rate limit hit by agent agent-7", tollgate_log_throttle_line, log);
    char text[128] = "?";
    EXPECT_EQ(tollgate_log_throttle_line(log, text, sizeof text, &len), TOLLGATE_STATUS_OUT_OF_RANGE);
    EXPECT_OK(tollgate_log_throttle_due(log, NOW + 60 * SECOND, &lines));
    EXPECT_EQ(lines, 1);
    EXPECT_TEXT("THROTTLE: Suppressed 47 similar messages from agent-7 in last minute", tollgate_log_throttle_line, log);
    lines = 77;
    EXPECT_EQ(tollgate_log_throttle_due(NULL, NOW, &lines), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_due(log, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_denied(NULL, ID, ID_LEN, NOW, &line), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_denied(log, NULL, 1, NOW, &line), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, 0, NOW, &line), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, 257, NOW, &line), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, ID_LEN, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_line(NULL, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_new(NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && len == 77 && lines == 77);
    tollgate_log_throttle_free(log);
    tollgate_log_throttle_free(NULL);
}

static void an_id_is_shown_safely_everywhere(void)
{
    EXPECT_TEXT("agent-7", tollgate_id_shown, ID, ID_LEN, TOLLGATE_SHOWN_TEXT);
    EXPECT_TEXT("&lt;b&gt;", tollgate_id_shown, "<b>", 3, TOLLGATE_SHOWN_HTML);
    EXPECT_TEXT("a%2Fb", tollgate_id_shown, "a/b", 3, TOLLGATE_SHOWN_URL);
    EXPECT_TEXT("\"agent-7\"", tollgate_id_shown, ID, ID_LEN, TOLLGATE_SHOWN_JSON);
    EXPECT_TEXT("agent-7", tollgate_id_shown, ID, ID_LEN, TOLLGATE_SHOWN_LABEL);
    char text[8] = "?";
    size_t len = 77;
    EXPECT_EQ(tollgate_id_shown(ID, ID_LEN, 5, text, 8, &len), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_id_shown(NULL, 1, 0, text, 8, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_id_shown(ID, 257, 0, text, 8, &len), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT(text[0] == '?' && len == 77);
}

/* What was compiled before there was sight has smaller options. */
static void options_from_the_past_are_understood(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(10, TOLLGATE_ON_FULL_DENY, NULL);
    options.struct_size = 32;
    options.sight = 77; /* Not looked at. */
    EXPECT_OK(tollgate_limiter_new(policy, &options, &limiter));
    tollgate_limiter_free(limiter);
    limiter = NULL;
    options.struct_size = sizeof options;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.sight = TOLLGATE_SIGHT_OFF;
    options.roster = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

int main(void)
{
    a_snapshot_counts_verdicts_by_lane();
    an_agent_is_seen_as_it_stands();
    agents_on_the_roster_are_listed();
    an_operator_reads_a_document();
    the_worst_offenders_come_first();
    events_are_polled_in_order();
    a_log_has_few_lines_of_many_denials();
    an_id_is_shown_safely_everywhere();
    options_from_the_past_are_understood();
    return expectations_end("test_sight");
}
