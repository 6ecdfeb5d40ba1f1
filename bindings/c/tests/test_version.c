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
    for (int32_t status = TOLLGATE_STATUS_OK; status <= TOLLGATE_STATUS_PANIC; status++) {
        EXPECT(strcmp(tollgate_status_text(status), unknown) != 0);
        for (int32_t other = TOLLGATE_STATUS_OK; other < status; other++)
            EXPECT(strcmp(tollgate_status_text(status), tollgate_status_text(other)) != 0);
    }
    EXPECT_EQ(strcmp(tollgate_status_text(TOLLGATE_STATUS_UNKNOWN_PLAN + 1), unknown), 0);
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
    EXPECT_EQ(sizeof(tollgate_limiter_options), 32);
    EXPECT_EQ(offsetof(tollgate_limiter_options, on_full), 4);
    EXPECT_EQ(offsetof(tollgate_limiter_options, agents), 8);
    EXPECT_EQ(offsetof(tollgate_limiter_options, clock), 16);
    EXPECT_EQ(offsetof(tollgate_limiter_options, id_hash), 24);
    EXPECT_EQ(sizeof(tollgate_error), 512);
    EXPECT_EQ(offsetof(tollgate_error, status), 4);
    EXPECT_EQ(offsetof(tollgate_error, line), 8);
    EXPECT_EQ(offsetof(tollgate_error, column), 12);
    EXPECT_EQ(offsetof(tollgate_error, message), 16);
}

int main(void)
{
    the_library_is_the_version_of_the_header();
    every_status_has_a_sentence_of_its_own();
    structs_are_laid_out_as_published();
    return expectations_end("test_version");
}
