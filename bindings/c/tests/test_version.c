/* Which tollgate this is, and the words for each status. */
#include "expect.h"

static void the_library_is_the_version_of_the_header(void)
{
    EXPECT_EQ(tollgate_version_number(), TOLLGATE_VERSION_NUMBER);
    EXPECT_EQ(strcmp(tollgate_version(), TOLLGATE_VERSION), 0);
    unsigned major, minor, patch;
    EXPECT_EQ(sscanf(tollgate_version(), "%u.%u.%u", &major, &minor, &patch), 3);
    EXPECT_EQ(tollgate_version_number(), major << 16 | minor << 8 | patch);
}

static void every_status_has_a_sentence_of_its_own(void)
{
    const char *unknown = tollgate_status_text(-1);
    for (int32_t status = TOLLGATE_STATUS_OK; status <= TOLLGATE_STATUS_LIMITS_DIFFER; status++) {
        EXPECT(strcmp(tollgate_status_text(status), unknown) != 0);
        for (int32_t other = TOLLGATE_STATUS_OK; other < status; other++)
            EXPECT(strcmp(tollgate_status_text(status), tollgate_status_text(other)) != 0);
    }
    EXPECT_EQ(strcmp(tollgate_status_text(TOLLGATE_STATUS_LIMITS_DIFFER + 1), unknown), 0);
    EXPECT_EQ(strcmp(tollgate_status_text(INT32_MIN), unknown), 0);
}

/* The layout is ABI: what is compiled today runs with tomorrow's library. */
static void structs_are_laid_out_as_published(void)
{
    EXPECT_EQ(sizeof(tollgate_status), 4);
    EXPECT_EQ(sizeof(tollgate_error), 512);
    EXPECT_EQ(offsetof(tollgate_error, status), 4);
    EXPECT_EQ(offsetof(tollgate_error, line), 8);
    EXPECT_EQ(offsetof(tollgate_error, column), 12);
    EXPECT_EQ(offsetof(tollgate_error, message), 16);
    EXPECT_EQ(sizeof(tollgate_limiter_options), 96);
    EXPECT_EQ(offsetof(tollgate_limiter_options, on_full), 4);
    EXPECT_EQ(offsetof(tollgate_limiter_options, agents), 8);
    EXPECT_EQ(offsetof(tollgate_limiter_options, clock), 16);
    EXPECT_EQ(offsetof(tollgate_limiter_options, id_hash), 24);
    EXPECT_EQ(offsetof(tollgate_limiter_options, observe), 28);
    EXPECT_EQ(offsetof(tollgate_limiter_options, sample_every), 32);
    EXPECT_EQ(offsetof(tollgate_limiter_options, prefault), 36);
    EXPECT_EQ(offsetof(tollgate_limiter_options, roster), 40);
    EXPECT_EQ(offsetof(tollgate_limiter_options, reservations), 48);
    EXPECT_EQ(offsetof(tollgate_limiter_options, reservations_per_agent), 56);
    EXPECT_EQ(offsetof(tollgate_limiter_options, shared_by), 60);
    EXPECT_EQ(offsetof(tollgate_limiter_options, shared_path), 64);
    EXPECT_EQ(offsetof(tollgate_limiter_options, shared_path_len), 72);
    EXPECT_EQ(offsetof(tollgate_limiter_options, shared_mode), 80);
    EXPECT_EQ(offsetof(tollgate_limiter_options, shared_fd), 84);
    EXPECT_EQ(offsetof(tollgate_limiter_options, cluster), 88);
    EXPECT_EQ(sizeof(tollgate_call_limit), 24);
    EXPECT_EQ(offsetof(tollgate_call_limit, count), 8);
    EXPECT_EQ(offsetof(tollgate_call_limit, period_ns), 16);
    EXPECT_EQ(sizeof(tollgate_request), 40);
    EXPECT_EQ(offsetof(tollgate_request, id_len), 8);
    EXPECT_EQ(offsetof(tollgate_request, cost), 16);
    EXPECT_EQ(offsetof(tollgate_request, lane), 24);
    EXPECT_EQ(offsetof(tollgate_request, plan), 28);
    EXPECT_EQ(offsetof(tollgate_request, limit), 32);
    EXPECT_EQ(sizeof(tollgate_verdict), 72);
    EXPECT_EQ(offsetof(tollgate_verdict, decision), 4);
    EXPECT_EQ(offsetof(tollgate_verdict, capacity), 8);
    EXPECT_EQ(offsetof(tollgate_verdict, retry_after_ns), 16);
    EXPECT_EQ(offsetof(tollgate_verdict, lane_wait_ns), 24);
    EXPECT_EQ(offsetof(tollgate_verdict, conduct_wait_ns), 32);
    EXPECT_EQ(offsetof(tollgate_verdict, full_in_ns), 40);
    EXPECT_EQ(offsetof(tollgate_verdict, token_ns), 48);
    EXPECT_EQ(offsetof(tollgate_verdict, count_left), 56);
    EXPECT_EQ(offsetof(tollgate_verdict, violations_in_a_row), 64);
    EXPECT_EQ(offsetof(tollgate_verdict, sustained_abuse), 68);
    EXPECT_EQ(offsetof(tollgate_verdict, source), 70);
    EXPECT_EQ(sizeof(tollgate_all_verdict), 24);
    EXPECT_EQ(offsetof(tollgate_all_verdict, decision), 4);
    EXPECT_EQ(offsetof(tollgate_all_verdict, retry_after_ns), 8);
    EXPECT_EQ(offsetof(tollgate_all_verdict, blocking), 16);
    EXPECT_EQ(sizeof(tollgate_lane_state), 40);
    EXPECT_EQ(offsetof(tollgate_lane_state, exempt), 4);
    EXPECT_EQ(offsetof(tollgate_lane_state, remaining), 8);
    EXPECT_EQ(offsetof(tollgate_lane_state, capacity), 16);
    EXPECT_EQ(offsetof(tollgate_lane_state, next_in_ns), 24);
    EXPECT_EQ(offsetof(tollgate_lane_state, full_in_ns), 32);
    EXPECT_EQ(sizeof(tollgate_settlement), 32);
    EXPECT_EQ(offsetof(tollgate_settlement, unused), 8);
    EXPECT_EQ(offsetof(tollgate_settlement, overspent), 16);
    EXPECT_EQ(offsetof(tollgate_settlement, left), 24);
    EXPECT_EQ(sizeof(tollgate_violation), 32);
    EXPECT_EQ(offsetof(tollgate_violation, violations_in_a_row), 4);
    EXPECT_EQ(offsetof(tollgate_violation, wait_ns), 8);
    EXPECT_EQ(offsetof(tollgate_violation, step_ns), 16);
    EXPECT_EQ(offsetof(tollgate_violation, sustained_abuse), 24);
    EXPECT_EQ(sizeof(tollgate_conduct_state), 40);
    EXPECT_EQ(offsetof(tollgate_conduct_state, rate_limited), 4);
    EXPECT_EQ(offsetof(tollgate_conduct_state, violations_in_window), 8);
    EXPECT_EQ(offsetof(tollgate_conduct_state, violations_in_a_row), 12);
    EXPECT_EQ(offsetof(tollgate_conduct_state, window_start_ns), 16);
    EXPECT_EQ(offsetof(tollgate_conduct_state, last_violation_ns), 24);
    EXPECT_EQ(offsetof(tollgate_conduct_state, wait_ns), 32);
    EXPECT_EQ(sizeof(tollgate_id), 16);
    EXPECT_EQ(offsetof(tollgate_id, id_len), 8);
    EXPECT_EQ(sizeof(tollgate_agent_id), 260);
    EXPECT_EQ(offsetof(tollgate_agent_id, bytes), 4);
    EXPECT_EQ(sizeof(tollgate_override), 96);
    EXPECT_EQ(offsetof(tollgate_override, limit), 4);
    EXPECT_EQ(sizeof(tollgate_assignment_state), 16);
    EXPECT_EQ(offsetof(tollgate_assignment_state, plan), 4);
    EXPECT_EQ(offsetof(tollgate_assignment_state, exempt), 8);
    EXPECT_EQ(offsetof(tollgate_assignment_state, override_count), 12);
    EXPECT_EQ(sizeof(tollgate_assignment_entry), 40);
    EXPECT_EQ(offsetof(tollgate_assignment_entry, id_len), 8);
    EXPECT_EQ(offsetof(tollgate_assignment_entry, overrides), 16);
    EXPECT_EQ(offsetof(tollgate_assignment_entry, override_count), 24);
    EXPECT_EQ(offsetof(tollgate_assignment_entry, plan), 32);
    EXPECT_EQ(offsetof(tollgate_assignment_entry, exempt), 36);
    EXPECT_EQ(sizeof(tollgate_budgets_loaded), 48);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, loaded), 8);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, ended), 16);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, unknown), 24);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, full), 32);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, ahead_ns), 40);
    EXPECT_EQ(sizeof(tollgate_budgets_saved), 24);
    EXPECT_EQ(offsetof(tollgate_budgets_saved, saved), 8);
    EXPECT_EQ(offsetof(tollgate_budgets_saved, unsaved), 16);
    EXPECT_EQ(sizeof(tollgate_action_lane), 16);
    EXPECT_EQ(offsetof(tollgate_action_lane, lane), 4);
    EXPECT_EQ(offsetof(tollgate_action_lane, known), 8);
    EXPECT_EQ(offsetof(tollgate_action_lane, first_seen), 12);
    EXPECT_EQ(sizeof(tollgate_unknown_action), 144);
    EXPECT_EQ(offsetof(tollgate_unknown_action, name), 72);
    EXPECT_EQ(sizeof(tollgate_unknown_action_totals), 24);
    EXPECT_EQ(offsetof(tollgate_unknown_action_totals, count), 4);
    EXPECT_EQ(offsetof(tollgate_unknown_action_totals, total), 8);
    EXPECT_EQ(offsetof(tollgate_unknown_action_totals, not_listed), 16);
    EXPECT_EQ(sizeof(tollgate_limiter_view), 256);
    EXPECT_EQ(offsetof(tollgate_limiter_view, observed), 4);
    EXPECT_EQ(offsetof(tollgate_limiter_view, allowed), 8);
    EXPECT_EQ(offsetof(tollgate_limiter_view, warned), 16);
    EXPECT_EQ(offsetof(tollgate_limiter_view, denied), 24);
    EXPECT_EQ(offsetof(tollgate_limiter_view, exempt), 32);
    EXPECT_EQ(offsetof(tollgate_limiter_view, errors), 40);
    EXPECT_EQ(offsetof(tollgate_limiter_view, full), 48);
    EXPECT_EQ(offsetof(tollgate_limiter_view, violations), 56);
    EXPECT_EQ(offsetof(tollgate_limiter_view, violations_last_hour), 64);
    EXPECT_EQ(offsetof(tollgate_limiter_view, sustained_abuse), 72);
    EXPECT_EQ(offsetof(tollgate_limiter_view, at_ns), 80);
    EXPECT_EQ(offsetof(tollgate_limiter_view, agents), 88);
    EXPECT_EQ(offsetof(tollgate_limiter_view, records), 96);
    EXPECT_EQ(offsetof(tollgate_limiter_view, claims), 104);
    EXPECT_EQ(offsetof(tollgate_limiter_view, idle_evictions), 112);
    EXPECT_EQ(offsetof(tollgate_limiter_view, lossy_evictions), 120);
    EXPECT_EQ(offsetof(tollgate_limiter_view, retries), 128);
    EXPECT_EQ(offsetof(tollgate_limiter_view, reservations), 136);
    EXPECT_EQ(offsetof(tollgate_limiter_view, reservations_expired), 144);
    EXPECT_EQ(offsetof(tollgate_limiter_view, reservations_refused), 152);
    EXPECT_EQ(offsetof(tollgate_limiter_view, agents_assigned), 160);
    EXPECT_EQ(offsetof(tollgate_limiter_view, agents_overridden), 168);
    EXPECT_EQ(offsetof(tollgate_limiter_view, agents_exempt), 176);
    EXPECT_EQ(offsetof(tollgate_limiter_view, unknown_actions), 184);
    EXPECT_EQ(offsetof(tollgate_limiter_view, events_dropped), 192);
    EXPECT_EQ(offsetof(tollgate_limiter_view, memory), 200);
    EXPECT_EQ(offsetof(tollgate_limiter_view, clock_fallbacks), 208);
    EXPECT_EQ(offsetof(tollgate_limiter_view, clock_source), 216);
    EXPECT_EQ(offsetof(tollgate_limiter_view, lane_count), 220);
    EXPECT_EQ(offsetof(tollgate_limiter_view, processes), 224);
    EXPECT_EQ(offsetof(tollgate_limiter_view, shared_fd), 228);
    EXPECT_EQ(offsetof(tollgate_limiter_view, takeovers), 232);
    EXPECT_EQ(offsetof(tollgate_limiter_view, busy), 240);
    EXPECT_EQ(offsetof(tollgate_limiter_view, policy_differs), 248);
    EXPECT_EQ(offsetof(tollgate_limiter_view, detached), 252);
    EXPECT_EQ(sizeof(tollgate_lane_counts), 32);
    EXPECT_EQ(offsetof(tollgate_lane_counts, warned), 8);
    EXPECT_EQ(offsetof(tollgate_lane_counts, denied), 16);
    EXPECT_EQ(offsetof(tollgate_lane_counts, exempt), 24);
    EXPECT_EQ(sizeof(tollgate_agent_view), 64);
    EXPECT_EQ(offsetof(tollgate_agent_view, known), 4);
    EXPECT_EQ(offsetof(tollgate_agent_view, exempt), 8);
    EXPECT_EQ(offsetof(tollgate_agent_view, plan), 12);
    EXPECT_EQ(offsetof(tollgate_agent_view, dominant_lane), 16);
    EXPECT_EQ(offsetof(tollgate_agent_view, rate_limited), 20);
    EXPECT_EQ(offsetof(tollgate_agent_view, violations_in_window), 24);
    EXPECT_EQ(offsetof(tollgate_agent_view, violations_in_a_row), 28);
    EXPECT_EQ(offsetof(tollgate_agent_view, at_ns), 32);
    EXPECT_EQ(offsetof(tollgate_agent_view, last_violation_ns), 40);
    EXPECT_EQ(offsetof(tollgate_agent_view, wait_ns), 48);
    EXPECT_EQ(offsetof(tollgate_agent_view, lane_count), 56);
    EXPECT_EQ(sizeof(tollgate_lane_view), 48);
    EXPECT_EQ(offsetof(tollgate_lane_view, capacity), 8);
    EXPECT_EQ(offsetof(tollgate_lane_view, next_in_ns), 16);
    EXPECT_EQ(offsetof(tollgate_lane_view, full_in_ns), 24);
    EXPECT_EQ(offsetof(tollgate_lane_view, used_percent), 32);
    EXPECT_EQ(offsetof(tollgate_lane_view, level), 40);
    EXPECT_EQ(offsetof(tollgate_lane_view, overridden), 44);
    EXPECT_EQ(sizeof(tollgate_agent_query), 48);
    EXPECT_EQ(offsetof(tollgate_agent_query, sort), 4);
    EXPECT_EQ(offsetof(tollgate_agent_query, prefix), 8);
    EXPECT_EQ(offsetof(tollgate_agent_query, prefix_len), 16);
    EXPECT_EQ(offsetof(tollgate_agent_query, part), 24);
    EXPECT_EQ(offsetof(tollgate_agent_query, part_len), 32);
    EXPECT_EQ(offsetof(tollgate_agent_query, page), 40);
    EXPECT_EQ(sizeof(tollgate_agent_row), 312);
    EXPECT_EQ(offsetof(tollgate_agent_row, exempt), 260);
    EXPECT_EQ(offsetof(tollgate_agent_row, plan), 264);
    EXPECT_EQ(offsetof(tollgate_agent_row, dominant_lane), 268);
    EXPECT_EQ(offsetof(tollgate_agent_row, rate_limited), 272);
    EXPECT_EQ(offsetof(tollgate_agent_row, violations_in_window), 276);
    EXPECT_EQ(offsetof(tollgate_agent_row, violations_in_a_row), 280);
    EXPECT_EQ(offsetof(tollgate_agent_row, last_violation_ns), 288);
    EXPECT_EQ(offsetof(tollgate_agent_row, wait_ns), 296);
    EXPECT_EQ(offsetof(tollgate_agent_row, used_percent), 304);
    EXPECT_EQ(sizeof(tollgate_agent_page), 24);
    EXPECT_EQ(offsetof(tollgate_agent_page, count), 4);
    EXPECT_EQ(offsetof(tollgate_agent_page, matched), 8);
    EXPECT_EQ(offsetof(tollgate_agent_page, not_listed), 16);
    EXPECT_EQ(sizeof(tollgate_offender), 280);
    EXPECT_EQ(offsetof(tollgate_offender, violations), 264);
    EXPECT_EQ(offsetof(tollgate_offender, error), 272);
    EXPECT_EQ(sizeof(tollgate_offender_totals), 32);
    EXPECT_EQ(offsetof(tollgate_offender_totals, count), 4);
    EXPECT_EQ(offsetof(tollgate_offender_totals, violations), 8);
    EXPECT_EQ(offsetof(tollgate_offender_totals, error_max), 16);
    EXPECT_EQ(offsetof(tollgate_offender_totals, missed), 24);
    EXPECT_EQ(sizeof(tollgate_event), 472);
    EXPECT_EQ(offsetof(tollgate_event, kind), 4);
    EXPECT_EQ(offsetof(tollgate_event, number), 8);
    EXPECT_EQ(offsetof(tollgate_event, at_ns), 16);
    EXPECT_EQ(offsetof(tollgate_event, lossy_evictions), 24);
    EXPECT_EQ(offsetof(tollgate_event, refused), 32);
    EXPECT_EQ(offsetof(tollgate_event, agents), 40);
    EXPECT_EQ(offsetof(tollgate_event, remaining), 48);
    EXPECT_EQ(offsetof(tollgate_event, violations_in_a_row), 56);
    EXPECT_EQ(offsetof(tollgate_event, lane), 60);
    EXPECT_EQ(offsetof(tollgate_event, decision), 64);
    EXPECT_EQ(offsetof(tollgate_event, agent), 68);
    EXPECT_EQ(offsetof(tollgate_event, channel), 328);
    EXPECT_EQ(offsetof(tollgate_event, action), 400);
}

static void a_library_says_what_is_built_in(void)
{
    const uint32_t known = TOLLGATE_FEATURE_CONFIG | TOLLGATE_FEATURE_PERSIST | TOLLGATE_FEATURE_SHARED
        | TOLLGATE_FEATURE_CLUSTER;
    EXPECT_EQ(tollgate_features() & ~known, 0);
}

int main(void)
{
    a_library_says_what_is_built_in();
    the_library_is_the_version_of_the_header();
    every_status_has_a_sentence_of_its_own();
    structs_are_laid_out_as_published();
    return expectations_end("test_version");
}
