/* What is kept in files: assignments, used budgets, reports. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, also with -std=c11. */
#include "expect.h"

#include <unistd.h>

static const char ID[] = "agent-7";
enum { ID_LEN = sizeof ID - 1 };

static char folder[] = "/tmp/tollgate-c-XXXXXX", path[64], beside[80];

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        exit(1);
}

static uint32_t is_exempt(const tollgate_limiter *limiter)
{
    tollgate_assignment_state assignment = SIZED(tollgate_assignment_state);
    REQUIRE_OK(tollgate_assignment(limiter, ID, ID_LEN, &assignment, NULL, 0));
    return assignment.exempt;
}

static void what_is_decided_outlives_the_limiter(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_reload_assignments(made.limiter, NULL), TOLLGATE_STATUS_NO_FILE);
    EXPECT_OK(tollgate_keep_assignments_in(made.limiter, path, strlen(path), NULL));
    EXPECT_OK(tollgate_set_exempt(made.limiter, ID, ID_LEN, true, NULL));
    tollgate_error error = SIZED(tollgate_error);
    rig other = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_keep_assignments_in(other.limiter, path, strlen(path), &error), TOLLGATE_STATUS_FILE);
    EXPECT(strstr(error.message, "another process, or twice by this one") != NULL);
    EXPECT_EQ(error.line | error.column, 0);
    rig_free(&made);

    EXPECT_OK(tollgate_keep_assignments_in(other.limiter, path, strlen(path), NULL));
    EXPECT_EQ(is_exempt(other.limiter), 1);

    /* An operator edits it. */
    write_file("{\"version\": 1, \"agents\": [{\"agent\": \"agent-8\", \"plan\": \"jwt\"}]}");
    EXPECT_EQ(tollgate_set_exempt(other.limiter, "c", 1, true, &error), TOLLGATE_STATUS_FILE);
    EXPECT(strstr(error.message, "was changed") != NULL);
    EXPECT_OK(tollgate_reload_assignments(other.limiter, NULL));
    EXPECT_EQ(is_exempt(other.limiter), 0);
    write_file("{\"version\": 1,\n \"agents\": [{\"agent\": 8}]}");
    EXPECT_EQ(tollgate_reload_assignments(other.limiter, &error), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(error.line, 2);
    EXPECT(error.column > 0 && strstr(error.message, path) != NULL);
    /* A NUL in the path does not cut the message short. */
    EXPECT_EQ(tollgate_write_report(other.limiter, "/tmp/a\0b", 8, &error), TOLLGATE_STATUS_FILE);
    EXPECT(strstr(error.message, "/tmp/a?b") != NULL);
    write_file("{\"version\": 1, \"agents\": [{\"agent\": \"agent-8\", \"plan\": \"gold\"}]}");
    EXPECT_EQ(tollgate_reload_assignments(other.limiter, NULL), TOLLGATE_STATUS_UNKNOWN_PLAN);
    rig_free(&other);
}

static void a_report_is_written(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_error error = SIZED(tollgate_error);
    EXPECT_OK(tollgate_write_report(made.limiter, path, strlen(path), &error));
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL && fgetc(file) == '{');
    if (file != NULL)
        fclose(file);
    remove(path);
    EXPECT_EQ(tollgate_write_report(made.limiter, "", 0, &error), TOLLGATE_STATUS_FILE);
    EXPECT(error.message[0] != 0);
    EXPECT_EQ(tollgate_write_report(NULL, path, strlen(path), NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_write_report(made.limiter, NULL, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_write_report(made.limiter, path, SIZE_MAX, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    rig_free(&made);
}

static void misuse_keeps_nothing(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_keep_assignments_in(NULL, path, strlen(path), NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, NULL, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, path, SIZE_MAX, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, "", 0, NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, "a\0b", 3, NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, folder, strlen(folder), NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_reload_assignments(NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    rig_free(&made);
}

static tollgate_policy *budget(void)
{
    return policy_of("[lanes]\ntokens = 'budget 1_000/day'\n");
}

static void what_was_used_outlives_the_limiter(void)
{
    rig made = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_budgets_loaded loaded = SIZED(tollgate_budgets_loaded);
    tollgate_budgets_saved saved = SIZED(tollgate_budgets_saved);
    tollgate_error error = SIZED(tollgate_error);
    tollgate_verdict verdict;
    EXPECT_EQ(tollgate_save_budgets(made.limiter, &error, &saved), TOLLGATE_STATUS_NO_FILE);
    EXPECT(error.message[0] != 0);
    EXPECT_OK(tollgate_keep_budgets_in(made.limiter, path, strlen(path), &error, &loaded));
    EXPECT_EQ(loaded.loaded | loaded.ended | loaded.unknown | loaded.full | loaded.ahead_ns | loaded.reserved, 0);
    EXPECT_OK(tollgate_check(made.limiter, REQUEST(ID, ID_LEN, 0, 400), TOLLGATE_NOW, 0, &verdict));
    EXPECT_OK(tollgate_save_budgets(made.limiter, NULL, &saved));
    EXPECT(saved.saved == 1 && saved.unsaved == 0 && saved.struct_size == sizeof saved);
    rig other = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_keep_budgets_in(other.limiter, path, strlen(path), &error, &loaded), TOLLGATE_STATUS_FILE);
    rig_free(&made);
    EXPECT_OK(tollgate_keep_budgets_in(other.limiter, path, strlen(path), NULL, &loaded));
    EXPECT_EQ(loaded.loaded, 1);
    EXPECT_EQ(tokens_left(other.limiter, ID, ID_LEN, 0), 600);
    rig_free(&other);

    /* An invalid file is refused with a reason and a location. */
    write_file("{\n\"version\": ?}");
    made = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, path, strlen(path), &error, &loaded), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(error.line, 2);
    remove(path);
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, NULL, 1, NULL, &loaded), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_keep_budgets_in(NULL, path, strlen(path), NULL, &loaded), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, path, strlen(path), NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, path, SIZE_MAX, NULL, &loaded), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_save_budgets(NULL, NULL, &saved), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_save_budgets(made.limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    loaded.struct_size--;
    saved.struct_size--;
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, path, strlen(path), NULL, &loaded), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_save_budgets(made.limiter, NULL, &saved), TOLLGATE_STATUS_STRUCT_SIZE);
    rig_free(&made);
}

/* A library without it has the functions all the same. */
static void what_is_not_built_in_says_so(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_keep_assignments_in(made.limiter, path, strlen(path), NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_reload_assignments(made.limiter, NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_write_report(made.limiter, path, strlen(path), NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    tollgate_budgets_loaded loaded = SIZED(tollgate_budgets_loaded);
    tollgate_budgets_saved saved = SIZED(tollgate_budgets_saved);
    EXPECT_EQ(tollgate_keep_budgets_in(made.limiter, path, strlen(path), NULL, &loaded), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_save_budgets(made.limiter, NULL, &saved), TOLLGATE_STATUS_NOT_BUILT_IN);
    rig_free(&made);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/assignments.json", folder);
    if (tollgate_features() & TOLLGATE_FEATURE_PERSIST) {
        what_is_decided_outlives_the_limiter();
        a_report_is_written();
        what_was_used_outlives_the_limiter();
        misuse_keeps_nothing();
    } else {
        what_is_not_built_in_says_so();
    }
    remove(path);
    static const char *const more[] = { "assignments.json.lock", "assignments.json.tmp", ".lock" };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(beside, sizeof beside, "%s/%s", folder, more[i]);
        remove(beside);
    }
    snprintf(beside, sizeof beside, "%s.lock", folder);
    remove(beside);
    EXPECT_EQ(rmdir(folder), 0);
    return expectations_end("test_file");
}
