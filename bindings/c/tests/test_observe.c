/* What an operator sees: counts, agents, offenders, events, reports, lines of a log. */
#include "expect.h"

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };
static const uint64_t NOW = 1000 * SECOND;

static rig observed(uint64_t roster, uint32_t sample_every)
{
    rig made = { NULL, rig_policy(), NULL };
    REQUIRE_OK(tollgate_clock_new(TOLLGATE_CLOCK_SOURCE_MANUAL, &made.clock));
    REQUIRE_OK(tollgate_clock_set(made.clock, NOW));
    tollgate_limiter_options options = rig_options(100, TOLLGATE_ON_FULL_DENY, made.clock);
    options.observe = TOLLGATE_OBSERVE_ON;
    options.roster = roster;
    options.sample_every = sample_every;
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, NULL, &made.limiter));
    return made;
}

static void ask(tollgate_limiter *limiter, const char *id, uint32_t lane, uint64_t cost)
{
    tollgate_verdict verdict;
    REQUIRE_OK(tollgate_check(limiter, REQUEST(id, strlen(id), lane, cost), TOLLGATE_NOW, TOLLGATE_COUNTED, &verdict));
}

static void a_snapshot_counts_verdicts_by_lane(void)
{
    rig made = observed(0, 0);
    ask(made.limiter, ID, LIGHT, 1);
    ask(made.limiter, ID, HEAVY, 3); /* Near its limit: a warning. */
    ask(made.limiter, ID, HEAVY, 1); /* A denial, and a violation. */
    REQUIRE_OK(tollgate_set_exempt(made.limiter, "b", 1, true, NULL));
    REQUIRE_OK(tollgate_assign(made.limiter, "c", 1, 0, NULL));
    ask(made.limiter, "b", HEAVY, 1);
    tollgate_verdict verdict;
    EXPECT_EQ(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, HEAVY, 0), TOLLGATE_NOW, 0, &verdict),
              TOLLGATE_STATUS_ZERO_COST);
    uint64_t reservation = 0;
    EXPECT_OK(tollgate_reserve(made.limiter, REQUEST("d", 1, LIGHT, 1), SECOND, TOLLGATE_NOW, 0,
                               &verdict, &reservation));

    tollgate_limiter_view view = SIZED(tollgate_limiter_view);
    tollgate_lane_counts lanes[LANES + 1];
    memset(lanes, 0x5a, sizeof lanes);
    EXPECT_OK(tollgate_snapshot(made.limiter, &view, lanes, LANES + 1));
    EXPECT_EQ(view.struct_size, sizeof view);
    EXPECT_EQ(view.lane_count, LANES);
    EXPECT_EQ(view.observed, 1);
    EXPECT_EQ(view.at_ns, NOW);
    EXPECT_EQ(view.allowed, 2);
    EXPECT_EQ(view.warned, 1);
    EXPECT_EQ(view.denied, 1);
    EXPECT_EQ(view.exempt, 1);
    EXPECT_EQ(view.errors, 1);
    EXPECT_EQ(view.full, 0);
    EXPECT_EQ(view.violations, 1);
    EXPECT_EQ(view.violations_last_hour, 1);
    EXPECT_EQ(view.sustained_abuse, 0);
    EXPECT_EQ(view.agents, view.claims);
    EXPECT(view.records >= 100 && view.memory > 100 * 64);
    EXPECT_EQ(view.reservations, 1);
    EXPECT_EQ(view.reservations_expired | view.reservations_refused, 0);
    EXPECT_EQ(view.agents_assigned, 2);
    EXPECT_EQ(view.agents_overridden, 0);
    EXPECT_EQ(view.agents_exempt, 1);
    EXPECT_EQ(view.events_dropped | view.clock_fallbacks | view.unknown_actions, 0);
    EXPECT_EQ(view.clock_source, TOLLGATE_CLOCK_SOURCE_MANUAL);
    EXPECT_EQ(lanes[LIGHT].allowed, 2);
    EXPECT_EQ(lanes[HEAVY].warned, 1);
    EXPECT_EQ(lanes[HEAVY].denied, 1);
    EXPECT_EQ(lanes[HEAVY].exempt, 1);
    EXPECT_EQ(lanes[CLOSED].denied, 0);
    EXPECT_EQ(lanes[LANES].denied, 0x5a5a5a5a5a5a5a5a);

    /* With room for one lane, one is written. */
    memset(lanes, 0x5a, sizeof lanes);
    EXPECT_OK(tollgate_snapshot(made.limiter, &view, lanes, 1));
    EXPECT_EQ(lanes[LIGHT].allowed, 2);
    EXPECT_EQ(lanes[HEAVY].denied, 0x5a5a5a5a5a5a5a5a);
    EXPECT_OK(tollgate_snapshot(made.limiter, &view, NULL, 0));

    view = SIZED(tollgate_limiter_view);
    EXPECT_EQ(tollgate_snapshot(made.limiter, &view, NULL, 1), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_snapshot(made.limiter, NULL, lanes, LANES), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_snapshot(NULL, &view, lanes, LANES), TOLLGATE_STATUS_NULL_POINTER);
    view.struct_size = offsetof(tollgate_limiter_view, processes) - 1; /* Less than it ever was. */
    EXPECT_EQ(tollgate_snapshot(made.limiter, &view, lanes, LANES), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(view.records, 0);
    rig_free(&made);

    made = rig_new(100, TOLLGATE_ON_FULL_DENY); /* Without observing, only what the limiter holds. */
    ask(made.limiter, ID, LIGHT, 1);
    view = SIZED(tollgate_limiter_view);
    EXPECT_OK(tollgate_snapshot(made.limiter, &view, NULL, 0));
    EXPECT_EQ(view.observed | view.allowed, 0);
    EXPECT_EQ(view.agents, 1);
    rig_free(&made);
}

static void an_agent_is_seen_as_it_stands(void)
{
    rig made = rig_new(100, TOLLGATE_ON_FULL_DENY);
    tollgate_limiter *limiter = made.limiter;
    ask(limiter, ID, LIGHT, 30);
    ask(limiter, ID, HEAVY, 3);
    ask(limiter, ID, HEAVY, 1);
    REQUIRE_OK(tollgate_assign(limiter, ID, ID_LEN, 0, NULL));
    REQUIRE_OK(tollgate_set_override(limiter, ID, ID_LEN, "light", 5, "60/minute", 9, NULL));
    tollgate_agent_view view = SIZED(tollgate_agent_view);
    tollgate_lane_view lanes[LANES + 1];
    memset(lanes, 0x5a, sizeof lanes);
    EXPECT_OK(tollgate_agent(limiter, ID, ID_LEN, TOLLGATE_NOW, &view, lanes, LANES + 1));
    EXPECT_EQ(view.struct_size, sizeof view);
    EXPECT_EQ(view.lane_count, LANES);
    EXPECT_EQ(view.known, 1);
    EXPECT_EQ(view.exempt, 0);
    EXPECT_EQ(view.plan, 0);
    EXPECT_EQ(view.dominant_lane, HEAVY);
    EXPECT_EQ(view.rate_limited, 1);
    EXPECT_EQ(view.violations_in_window, 1);
    EXPECT_EQ(view.violations_in_a_row, 1);
    EXPECT_EQ(view.at_ns, NOW);
    EXPECT_EQ(view.last_violation_ns, NOW);
    EXPECT_EQ(view.wait_ns, SECOND);
    EXPECT_EQ(lanes[LIGHT].overridden, 1);
    EXPECT_EQ(lanes[LIGHT].capacity, 60);
    EXPECT_EQ(lanes[HEAVY].remaining, 0);
    EXPECT_EQ(lanes[HEAVY].level, TOLLGATE_USAGE_LEVEL_RED);
    EXPECT_EQ((int)lanes[HEAVY].used_percent, 100);
    EXPECT_EQ(lanes[HEAVY].full_in_ns, 18 * SECOND);
    EXPECT_EQ(lanes[HEAVY].next_in_ns, 6 * SECOND);
    EXPECT_EQ(lanes[CLOSED].next_in_ns, TOLLGATE_NEVER);
    EXPECT_EQ(lanes[LANES].level, 0x5a5a5a5a);
    EXPECT_OK(tollgate_agent(limiter, ID, ID_LEN, NOW + 6 * SECOND, &view, lanes, LANES));
    EXPECT_EQ(lanes[HEAVY].remaining, 1);
    EXPECT_EQ(lanes[HEAVY].level, TOLLGATE_USAGE_LEVEL_YELLOW);

    EXPECT_OK(tollgate_agent(limiter, "stranger", 8, TOLLGATE_NOW, &view, lanes, LANES));
    EXPECT_EQ(view.known | view.rate_limited | view.violations_in_window, 0);
    EXPECT_EQ(view.plan, TOLLGATE_NONE);
    EXPECT_EQ(view.last_violation_ns, TOLLGATE_NEVER);
    EXPECT_EQ(lanes[LIGHT].level, TOLLGATE_USAGE_LEVEL_GREEN);
    REQUIRE_OK(tollgate_set_exempt(limiter, "b", 1, true, NULL));
    EXPECT_OK(tollgate_agent(limiter, "b", 1, TOLLGATE_NOW, &view, NULL, 0));
    EXPECT_EQ(view.exempt, 1);
    EXPECT_EQ(view.dominant_lane, TOLLGATE_NONE);

    view = SIZED(tollgate_agent_view);
    const uint64_t now = TOLLGATE_NOW;
    EXPECT_EQ(tollgate_agent(NULL, ID, ID_LEN, now, &view, lanes, LANES), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent(limiter, NULL, 1, now, &view, lanes, LANES), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent(limiter, ID, 0, now, &view, lanes, LANES), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_agent(limiter, ID, 257, now, &view, lanes, LANES), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_agent(limiter, ID, ID_LEN, now, NULL, lanes, LANES), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agent(limiter, ID, ID_LEN, now, &view, NULL, LANES), TOLLGATE_STATUS_NULL_POINTER);
    view.struct_size--;
    EXPECT_EQ(tollgate_agent(limiter, ID, ID_LEN, now, &view, lanes, LANES), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(view.at_ns, 0);
    rig_free(&made);
}

static bool is(const tollgate_agent_id *id, const char *text)
{
    return id->len == strlen(text) && memcmp(id->bytes, text, id->len) == 0;
}

static void agents_on_the_roster_are_listed(void)
{
    rig made = observed(1000, 0);
    tollgate_limiter *limiter = made.limiter;
    ask(limiter, "user:1", HEAVY, 1);
    ask(limiter, "user:2", HEAVY, 3);
    ask(limiter, "ip:10", HEAVY, 2);
    tollgate_agent_row rows[4];
    tollgate_agent_page page = SIZED(tollgate_agent_page);
    tollgate_agent_query query = SIZED(tollgate_agent_query);
    query.sort = TOLLGATE_AGENT_SORT_USAGE;
    query.prefix = "user:";
    query.prefix_len = 5;
    memset(rows, 0x5a, sizeof rows);
    EXPECT_OK(tollgate_agents(limiter, &query, rows, 1, &page));
    EXPECT_EQ(page.count, 1);
    EXPECT_EQ(page.matched, 2);
    EXPECT_EQ(page.not_listed, 0);
    EXPECT(is(&rows[0].id, "user:2"));
    EXPECT_EQ(rows[0].dominant_lane, HEAVY);
    EXPECT_EQ((int)rows[0].used_percent, 100);
    EXPECT_EQ(rows[1].id.len, 0x5a5a5a5a);
    query.page = 1;
    EXPECT_OK(tollgate_agents(limiter, &query, rows, 1, &page));
    EXPECT(page.count == 1 && is(&rows[0].id, "user:1"));
    query.page = 2;
    EXPECT_OK(tollgate_agents(limiter, &query, rows, 1, &page));
    EXPECT(page.count == 0 && page.matched == 2);

    query = SIZED(tollgate_agent_query);
    query.sort = TOLLGATE_AGENT_SORT_VIOLATIONS;
    query.part = "10";
    query.part_len = 2;
    EXPECT_OK(tollgate_agents(limiter, &query, rows, 4, &page));
    EXPECT_EQ(page.matched, 1);
    EXPECT_OK(tollgate_agents(limiter, NULL, rows, 4, &page)); /* All, by id. */
    EXPECT_EQ(page.count, 3);
    EXPECT(is(&rows[0].id, "ip:10") && is(&rows[2].id, "user:2"));

    page = SIZED(tollgate_agent_page);
    memset(rows, 0x5a, sizeof rows);
    EXPECT_EQ(tollgate_agents(NULL, NULL, rows, 4, &page), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agents(limiter, NULL, NULL, 4, &page), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_agents(limiter, NULL, rows, 4, NULL), TOLLGATE_STATUS_NULL_POINTER);
    query.sort = 3;
    EXPECT_EQ(tollgate_agents(limiter, &query, rows, 4, &page), TOLLGATE_STATUS_INVALID_OPTION);
    query.sort = 0;
    query.part_len = 257;
    EXPECT_EQ(tollgate_agents(limiter, &query, rows, 4, &page), TOLLGATE_STATUS_ID_TOO_LONG);
    query.part_len = 2;
    query.struct_size--;
    EXPECT_EQ(tollgate_agents(limiter, &query, rows, 4, &page), TOLLGATE_STATUS_STRUCT_SIZE);
    page.struct_size--;
    EXPECT_EQ(tollgate_agents(limiter, NULL, rows, 4, &page), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT(page.matched == 0 && rows[0].id.len == 0x5a5a5a5a);
    rig_free(&made);

    made = rig_new(100, TOLLGATE_ON_FULL_DENY); /* Without a roster none can be listed. */
    ask(made.limiter, ID, LIGHT, 1);
    page = SIZED(tollgate_agent_page);
    EXPECT_OK(tollgate_agents(made.limiter, NULL, rows, 4, &page));
    EXPECT(page.count == 0 && page.matched == 0 && page.not_listed == 1);
    rig_free(&made);
}

static void an_operator_reads_a_report(void)
{
    rig made = observed(0, 0);
    char json[16384] = "?";
    size_t len = 77, same = 77;
    EXPECT_EQ(tollgate_report(made.limiter, json, 2, &len), TOLLGATE_STATUS_BUFFER_TOO_SMALL);
    EXPECT_EQ(tollgate_report(NULL, json, sizeof json, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_report(made.limiter, json, sizeof json, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(json[0] == '?' && len == 77);
    EXPECT_OK(tollgate_report(made.limiter, NULL, 0, &len));
    EXPECT_OK(tollgate_report(made.limiter, json, sizeof json, &same));
    EXPECT(json[0] == '{' && strlen(json) == same && len > 100);
    rig_free(&made);
}

static void the_worst_offenders_come_first(void)
{
    rig made = observed(0, 0);
    for (int i = 0; i < 3; i++)
        ask(made.limiter, "bad", CLOSED, 1);
    for (int i = 0; i < 5; i++)
        ask(made.limiter, "worse", CLOSED, 1);
    tollgate_offender offenders[3];
    tollgate_offender_totals totals = SIZED(tollgate_offender_totals);
    memset(offenders, 0x5a, sizeof offenders);
    EXPECT_OK(tollgate_top_offenders(made.limiter, offenders, 3, &totals));
    EXPECT_EQ(totals.count, 2);
    EXPECT_EQ(totals.violations, 8);
    EXPECT_EQ(totals.error_max | totals.missed, 0);
    EXPECT(is(&offenders[0].id, "worse") && offenders[0].violations == 5 && offenders[0].error == 0);
    EXPECT(is(&offenders[1].id, "bad") && offenders[1].violations == 3);
    EXPECT_EQ(offenders[2].id.len, 0x5a5a5a5a);
    /* With room for one, one is written. */
    memset(offenders, 0x5a, sizeof offenders);
    EXPECT_OK(tollgate_top_offenders(made.limiter, offenders, 1, &totals));
    EXPECT(is(&offenders[0].id, "worse"));
    EXPECT_EQ(offenders[1].id.len, 0x5a5a5a5a);
    EXPECT_OK(tollgate_top_offenders(made.limiter, NULL, 0, &totals));
    EXPECT_EQ(totals.violations, 8);

    totals = SIZED(tollgate_offender_totals);
    EXPECT_EQ(tollgate_top_offenders(NULL, offenders, 1, &totals), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_top_offenders(made.limiter, NULL, 1, &totals), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_top_offenders(made.limiter, offenders, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    totals.struct_size--;
    EXPECT_EQ(tollgate_top_offenders(made.limiter, offenders, 1, &totals), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(totals.count, 0);
    rig_free(&made);
}

static tollgate_event poll(tollgate_limiter *limiter)
{
    tollgate_event event = SIZED(tollgate_event);
    event.number = 77;
    REQUIRE_OK(tollgate_poll_event(limiter, &event));
    EXPECT_EQ(event.struct_size, sizeof event);
    return event;
}

static void events_are_polled_in_order(void)
{
    rig made = observed(0, 1);
    EXPECT_EQ(poll(made.limiter).kind, TOLLGATE_EVENT_TYPE_NONE);
    ask(made.limiter, "a\xff", HEAVY, 1);
    tollgate_event event = poll(made.limiter);
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_CHECKED && event.lane == HEAVY && event.remaining == 2);
    EXPECT(event.decision == TOLLGATE_DECISION_ALLOW && is(&event.agent, "a\xff"));
    EXPECT_EQ(event.number, 0);
    EXPECT_EQ(event.at_ns, NOW);
    REQUIRE_OK(tollgate_set_exempt(made.limiter, ID, ID_LEN, true, NULL));
    event = poll(made.limiter);
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_ASSIGNMENT_CHANGED && is(&event.agent, ID) && event.lane == 0);
    EXPECT_EQ(event.number, 1);
    const tollgate_assignment_entry entries[] = { { "b", 1, NULL, 0, 0, 0 }, { "c", 1, NULL, 0, 0, 0 } };
    REQUIRE_OK(tollgate_set_assignments(made.limiter, entries, 2, NULL));
    event = poll(made.limiter);
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_ASSIGNMENTS_CHANGED && event.agents == 2);
    REQUIRE_OK(tollgate_replace_policy(made.limiter, made.policy, NULL));
    EXPECT_EQ(poll(made.limiter).kind, TOLLGATE_EVENT_TYPE_POLICY_REPLACED);
    tollgate_violation violation = SIZED(tollgate_violation);
    for (int i = 0; i < 10; i++)
        EXPECT_OK(tollgate_record_violation(made.limiter, "b", 1, TOLLGATE_NOW, &violation));
    event = poll(made.limiter);
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_SUSTAINED_ABUSE && is(&event.agent, "b"));
    EXPECT_EQ(event.violations_in_a_row, 10);
    rig_free(&made);

    tollgate_limiter_options options = rig_options(1, TOLLGATE_ON_FULL_DENY, NULL);
    options.observe = TOLLGATE_OBSERVE_ON;
    made = (rig){ NULL, preset("hub"), NULL };
    REQUIRE_OK(tollgate_limiter_new(made.policy, &options, NULL, &made.limiter));
    tollgate_action_lane lane = SIZED(tollgate_action_lane);
    EXPECT_OK(tollgate_lane_for(made.limiter, "ws", 2, "dance", 5, &lane));
    event = poll(made.limiter);
    EXPECT(event.kind == TOLLGATE_EVENT_TYPE_UNKNOWN_ACTION && strcmp(event.channel, "ws") == 0);
    EXPECT(strcmp(event.action, "dance") == 0 && event.agent.len == 0);

    event.number = 77;
    EXPECT_EQ(tollgate_poll_event(NULL, &event), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_poll_event(made.limiter, NULL), TOLLGATE_STATUS_NULL_POINTER);
    event.struct_size--;
    EXPECT_EQ(tollgate_poll_event(made.limiter, &event), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(event.number, 77);
    rig_free(&made);
}

/* Reads a line twice and takes it: its length alone, and then the line. */
static void expect_line(tollgate_log_throttle *log, uint64_t now_ns, const char *expected)
{
    char line[128] = "?";
    size_t len = 777;
    if (expected[0] != 0) {
        EXPECT_EQ(tollgate_log_throttle_line(log, now_ns, line, strlen(expected), &len),
                  TOLLGATE_STATUS_BUFFER_TOO_SMALL);
        EXPECT(len == 777 && line[0] == '?');
    }
    EXPECT_OK(tollgate_log_throttle_line(log, now_ns, NULL, 0, &len));
    EXPECT_EQ(len, strlen(expected));
    EXPECT_OK(tollgate_log_throttle_line(log, now_ns, line, sizeof line, &len));
    EXPECT_EQ(len, strlen(expected));
    EXPECT_EQ(strcmp(line, expected), 0);
}

static void a_log_has_few_lines_for_many_denials(void)
{
    tollgate_log_throttle *log = NULL;
    bool line = false;
    size_t len = 77;
    REQUIRE_OK(tollgate_log_throttle_new(&log));
    expect_line(log, NOW, "");
    for (int i = 0; i < 48; i++) {
        EXPECT_OK(tollgate_log_throttle_denied(log, ID, ID_LEN, NOW, &line));
        EXPECT_EQ(line, i == 0);
    }
    expect_line(log, NOW, "INFO: Rate limit hit by agent agent-7");
    expect_line(log, NOW, "");
    expect_line(log, NOW + 60 * SECOND, "THROTTLE: Suppressed 47 similar messages from agent-7 in last minute");
    expect_line(log, NOW + 60 * SECOND, "");
    char text[128] = "?";
    EXPECT_EQ(tollgate_log_throttle_line(NULL, NOW, text, sizeof text, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_line(log, NOW, NULL, 8, &len), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_line(log, NOW, text, sizeof text, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_line(log, TOLLGATE_NOW, text, sizeof text, &len), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_log_throttle_denied(NULL, ID, ID_LEN, NOW, &line), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_denied(log, NULL, 1, NOW, &line), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, 0, NOW, &line), TOLLGATE_STATUS_EMPTY_ID);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, 257, NOW, &line), TOLLGATE_STATUS_ID_TOO_LONG);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, ID_LEN, TOLLGATE_NOW, &line), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT_EQ(tollgate_log_throttle_denied(log, ID, ID_LEN, NOW, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_log_throttle_new(NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT(text[0] == '?' && len == 77);
    tollgate_log_throttle_free(log);
    tollgate_log_throttle_free(NULL);
}

static void an_id_is_safe_to_show_everywhere(void)
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

static void bad_options_are_refused(void)
{
    tollgate_policy *policy = rig_policy();
    tollgate_limiter *limiter = NULL;
    tollgate_limiter_options options = rig_options(10, TOLLGATE_ON_FULL_DENY, NULL);
    options.observe = 2;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.observe = TOLLGATE_OBSERVE_OFF;
    options.roster = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    options.roster = 0;
    options.sample_every = 1;
    EXPECT_EQ(tollgate_limiter_new(policy, &options, NULL, &limiter), TOLLGATE_STATUS_INVALID_OPTION);
    EXPECT(limiter == NULL);
    tollgate_policy_free(policy);
}

int main(void)
{
    a_snapshot_counts_verdicts_by_lane();
    an_agent_is_seen_as_it_stands();
    agents_on_the_roster_are_listed();
    an_operator_reads_a_report();
    the_worst_offenders_come_first();
    events_are_polled_in_order();
    a_log_has_few_lines_for_many_denials();
    an_id_is_safe_to_show_everywhere();
    bad_options_are_refused();
    return expectations_end("test_observe");
}
