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
    for (int32_t status = TOLLGATE_STATUS_OK; status <= TOLLGATE_STATUS_USED_TOO_LARGE; status++) {
        EXPECT(strcmp(tollgate_status_text(status), unknown) != 0);
        for (int32_t other = TOLLGATE_STATUS_OK; other < status; other++)
            EXPECT(strcmp(tollgate_status_text(status), tollgate_status_text(other)) != 0);
    }
    EXPECT_EQ(strcmp(tollgate_status_text(TOLLGATE_STATUS_USED_TOO_LARGE + 1), unknown), 0);
    EXPECT_EQ(strcmp(tollgate_status_text(INT32_MIN), unknown), 0);
}

/* The layout is ABI: what is compiled today runs with tomorrow's library. */
static void structs_are_laid_out_as_published(void)
{
    EXPECT_EQ(sizeof(tollgate_status), 4);
    EXPECT_EQ(sizeof(tollgate_verdict), 40);
    EXPECT_EQ(offsetof(tollgate_verdict, decision), 4);
    EXPECT_EQ(offsetof(tollgate_verdict, capacity), 8);
    EXPECT_EQ(offsetof(tollgate_verdict, retry_after_ns), 16);
    EXPECT_EQ(offsetof(tollgate_verdict, full_in_ns), 24);
    EXPECT_EQ(offsetof(tollgate_verdict, token_ns), 32);
    EXPECT_EQ(sizeof(tollgate_answer), 40);
    EXPECT_EQ(offsetof(tollgate_answer, decision), 4);
    EXPECT_EQ(offsetof(tollgate_answer, token_ns), 32);
    EXPECT_EQ(sizeof(tollgate_request), 32);
    EXPECT_EQ(offsetof(tollgate_request, id_len), 8);
    EXPECT_EQ(offsetof(tollgate_request, cost), 16);
    EXPECT_EQ(offsetof(tollgate_request, lane), 24);
    EXPECT_EQ(sizeof(tollgate_lane_status), 40);
    EXPECT_EQ(offsetof(tollgate_lane_status, remaining), 8);
    EXPECT_EQ(offsetof(tollgate_lane_status, full_in_ns), 32);
    EXPECT_EQ(sizeof(tollgate_stats), 56);
    EXPECT_EQ(offsetof(tollgate_stats, agents), 8);
    EXPECT_EQ(offsetof(tollgate_stats, retries), 48);
    EXPECT_EQ(sizeof(tollgate_limiter_options), 64);
    EXPECT_EQ(offsetof(tollgate_limiter_options, sight), 32);
    EXPECT_EQ(offsetof(tollgate_limiter_options, roster), 40);
    EXPECT_EQ(offsetof(tollgate_limiter_options, reservations), 48);
    EXPECT_EQ(offsetof(tollgate_limiter_options, commit_memory), 56);
    EXPECT_EQ(sizeof(tollgate_all_verdict), 24);
    EXPECT_EQ(offsetof(tollgate_all_verdict, retry_after_ns), 8);
    EXPECT_EQ(offsetof(tollgate_all_verdict, blocking), 16);
    EXPECT_EQ(offsetof(tollgate_all_verdict, sustained_abuse), 20);
    EXPECT_EQ(sizeof(tollgate_settlement), 32);
    EXPECT_EQ(sizeof(tollgate_budgets_loaded), 48);
    EXPECT_EQ(offsetof(tollgate_budgets_loaded, ahead_ns), 40);
    EXPECT_EQ(sizeof(tollgate_budgets_saved), 24);
    EXPECT_EQ(offsetof(tollgate_budgets_saved, unsaved), 16);
    EXPECT_EQ(offsetof(tollgate_settlement, unused), 8);
    EXPECT_EQ(offsetof(tollgate_settlement, overspent), 16);
    EXPECT_EQ(offsetof(tollgate_settlement, left), 24);
    EXPECT_EQ(sizeof(tollgate_snapshot), 192);
    EXPECT_EQ(offsetof(tollgate_snapshot, clock_source), 184);
    EXPECT_EQ(sizeof(tollgate_lane_counts), 32);
    EXPECT_EQ(sizeof(tollgate_agent_view), 56);
    EXPECT_EQ(offsetof(tollgate_agent_view, at_ns), 32);
    EXPECT_EQ(sizeof(tollgate_lane_view), 48);
    EXPECT_EQ(offsetof(tollgate_lane_view, level), 40);
    EXPECT_EQ(sizeof(tollgate_agent_query), 56);
    EXPECT_EQ(sizeof(tollgate_event), 472);
    EXPECT_EQ(offsetof(tollgate_event, agent), 72);
    EXPECT_EQ(offsetof(tollgate_event, channel), 328);
    EXPECT_EQ(offsetof(tollgate_limiter_options, on_full), 4);
    EXPECT_EQ(offsetof(tollgate_limiter_options, agents), 8);
    EXPECT_EQ(offsetof(tollgate_limiter_options, clock), 16);
    EXPECT_EQ(offsetof(tollgate_limiter_options, id_hash), 24);
    EXPECT_EQ(sizeof(tollgate_error), 512);
    EXPECT_EQ(offsetof(tollgate_error, status), 4);
    EXPECT_EQ(offsetof(tollgate_error, line), 8);
    EXPECT_EQ(offsetof(tollgate_error, column), 12);
    EXPECT_EQ(offsetof(tollgate_error, message), 16);
    EXPECT_EQ(sizeof(tollgate_admission), 72);
    EXPECT_EQ(offsetof(tollgate_admission, retry_after_ns), 16);
    EXPECT_EQ(offsetof(tollgate_admission, lane_retry_after_ns), 40);
    EXPECT_EQ(offsetof(tollgate_admission, wait_ns), 48);
    EXPECT_EQ(offsetof(tollgate_admission, step_ns), 56);
    EXPECT_EQ(offsetof(tollgate_admission, consecutive), 64);
    EXPECT_EQ(offsetof(tollgate_admission, sustained_abuse), 68);
    EXPECT_EQ(sizeof(tollgate_violation), 32);
    EXPECT_EQ(offsetof(tollgate_violation, wait_ns), 8);
    EXPECT_EQ(offsetof(tollgate_violation, sustained_abuse), 24);
    EXPECT_EQ(sizeof(tollgate_conduct), 40);
    EXPECT_EQ(offsetof(tollgate_conduct, window_start_ns), 16);
    EXPECT_EQ(offsetof(tollgate_conduct, wait_ns), 32);
    EXPECT_EQ(sizeof(tollgate_conduct_rules), 160);
    EXPECT_EQ(offsetof(tollgate_conduct_rules, curve_ns), 8);
    EXPECT_EQ(offsetof(tollgate_conduct_rules, quiet_ns), 128);
    EXPECT_EQ(offsetof(tollgate_conduct_rules, enforce_wait), 152);
    EXPECT_EQ(sizeof(tollgate_id), 16);
    EXPECT_EQ(sizeof(tollgate_action_lane), 16);
    EXPECT_EQ(offsetof(tollgate_action_lane, known), 8);
}

static void a_library_says_what_is_built_in(void)
{
    EXPECT_EQ(tollgate_features() & ~(uint32_t)(TOLLGATE_FEATURE_CONFIG | TOLLGATE_FEATURE_PERSIST), 0);
}

int main(void)
{
    a_library_says_what_is_built_in();
    the_library_is_the_version_of_the_header();
    every_status_has_a_sentence_of_its_own();
    structs_are_laid_out_as_published();
    return expectations_end("test_version");
}
