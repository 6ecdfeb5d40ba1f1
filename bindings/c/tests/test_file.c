/* Assignments that are kept in a file. */
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

static void what_is_decided_outlives_the_limiter(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_reload_assignments(made.limiter, NULL), TOLLGATE_STATUS_NO_FILE);
    EXPECT_OK(tollgate_limiter_keep_assignments_in(made.limiter, path, strlen(path), NULL));
    EXPECT_OK(tollgate_limiter_exempt(made.limiter, ID, ID_LEN, NULL));
    tollgate_error error = error_new();
    rig other = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(other.limiter, path, strlen(path), &error), TOLLGATE_STATUS_FILE);
    EXPECT(strstr(error.message, "is held by another process, or twice by this one") != NULL);
    EXPECT_EQ(error.line | error.column, 0);
    rig_free(&made);

    EXPECT_OK(tollgate_limiter_keep_assignments_in(other.limiter, path, strlen(path), NULL));
    bool exempt = false;
    EXPECT_OK(tollgate_limiter_is_exempt(other.limiter, ID, ID_LEN, &exempt));
    EXPECT_EQ(exempt, true);

    /* Somebody edits it. */
    write_file("{\"version\": 1, \"agents\": [{\"agent\": \"agent-8\", \"plan\": \"jwt\"}]}");
    EXPECT_EQ(tollgate_limiter_exempt(other.limiter, "c", 1, &error), TOLLGATE_STATUS_FILE);
    EXPECT(strstr(error.message, "was changed by somebody else") != NULL);
    EXPECT_OK(tollgate_limiter_reload_assignments(other.limiter, NULL));
    EXPECT_OK(tollgate_limiter_is_exempt(other.limiter, ID, ID_LEN, &exempt));
    EXPECT_EQ(exempt, false);
    write_file("{\"version\": 1,\n \"agents\": [{\"agent\": 8}]}");
    EXPECT_EQ(tollgate_limiter_reload_assignments(other.limiter, &error), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(error.line, 2);
    EXPECT(error.column > 0 && strstr(error.message, path) != NULL);
    write_file("{\"version\": 1, \"agents\": [{\"agent\": \"agent-8\", \"plan\": \"gold\"}]}");
    EXPECT_EQ(tollgate_limiter_reload_assignments(other.limiter, NULL), TOLLGATE_STATUS_UNKNOWN_PLAN);
    rig_free(&other);
}

static void a_status_document_is_written(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_error error = error_new();
    EXPECT_OK(tollgate_limiter_write_status(made.limiter, path, strlen(path), &error));
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL && fgetc(file) == '{');
    if (file != NULL)
        fclose(file);
    remove(path);
    EXPECT_EQ(tollgate_limiter_write_status(made.limiter, "", 0, &error), TOLLGATE_STATUS_FILE);
    EXPECT(error.message[0] != 0);
    EXPECT_EQ(tollgate_limiter_write_status(NULL, path, strlen(path), NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_write_status(made.limiter, NULL, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_write_status(made.limiter, path, SIZE_MAX, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    rig_free(&made);
}

static void misuse_keeps_nothing(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(NULL, path, strlen(path), NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, NULL, 1, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, path, SIZE_MAX, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, "", 0, NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, "a\0b", 3, NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, folder, strlen(folder), NULL), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(tollgate_limiter_reload_assignments(NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    rig_free(&made);
}

static tollgate_budgets_loaded loaded_new(void)
{
    tollgate_budgets_loaded loaded;
    memset(&loaded, 0, sizeof loaded);
    loaded.struct_size = sizeof loaded;
    return loaded;
}

static tollgate_budgets_saved saved_new(void)
{
    tollgate_budgets_saved saved;
    memset(&saved, 0, sizeof saved);
    saved.struct_size = sizeof saved;
    return saved;
}

static tollgate_policy *budget(void)
{
    tollgate_policy_builder *builder = NULL;
    tollgate_policy *policy = NULL;
    REQUIRE_OK(tollgate_policy_builder_new(&builder));
    REQUIRE_OK(tollgate_policy_builder_lane(builder, TOLLGATE_LITERAL("tokens"), TOLLGATE_LITERAL("budget 1_000/day")));
    REQUIRE_OK(tollgate_policy_builder_build(builder, &policy, NULL));
    tollgate_policy_builder_free(builder);
    return policy;
}

static void what_was_used_outlives_the_limiter(void)
{
    rig made = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    tollgate_budgets_loaded loaded = loaded_new();
    tollgate_budgets_saved saved = saved_new();
    tollgate_error error = error_new();
    tollgate_verdict verdict = verdict_new();
    EXPECT_EQ(tollgate_limiter_save_budgets(made.limiter, &saved, &error), TOLLGATE_STATUS_NO_FILE);
    EXPECT(error.message[0] != 0);
    EXPECT_OK(tollgate_limiter_keep_budgets_in(made.limiter, path, strlen(path), &loaded, &error));
    EXPECT_EQ(loaded.loaded | loaded.ended | loaded.unknown | loaded.full | loaded.ahead_ns | loaded.reserved, 0);
    EXPECT_OK(tollgate_limiter_check(made.limiter, ID, ID_LEN, 0, 400, &verdict));
    EXPECT_OK(tollgate_limiter_save_budgets(made.limiter, &saved, NULL));
    EXPECT(saved.saved == 1 && saved.unsaved == 0 && saved.struct_size == sizeof saved);
    rig other = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(other.limiter, path, strlen(path), &loaded, &error), TOLLGATE_STATUS_FILE);
    rig_free(&made);
    EXPECT_OK(tollgate_limiter_keep_budgets_in(other.limiter, path, strlen(path), &loaded, NULL));
    EXPECT_EQ(loaded.loaded, 1);
    EXPECT_EQ(tokens_left(other.limiter, ID, ID_LEN, 0), 600);
    rig_free(&other);

    /* What makes no sense is refused in words, with its place. */
    write_file("{\n\"version\": ?}");
    made = rig_of(budget(), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, path, strlen(path), &loaded, &error), TOLLGATE_STATUS_FILE);
    EXPECT_EQ(error.line, 2);
    remove(path);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, NULL, 1, &loaded, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(NULL, path, strlen(path), &loaded, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, path, strlen(path), NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, path, SIZE_MAX, &loaded, NULL), TOLLGATE_STATUS_TEXT_TOO_LONG);
    EXPECT_EQ(tollgate_limiter_save_budgets(NULL, &saved, NULL), TOLLGATE_STATUS_NULL_POINTER);
    EXPECT_EQ(tollgate_limiter_save_budgets(made.limiter, NULL, NULL), TOLLGATE_STATUS_NULL_POINTER);
    loaded.struct_size--;
    saved.struct_size--;
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, path, strlen(path), &loaded, NULL), TOLLGATE_STATUS_STRUCT_SIZE);
    EXPECT_EQ(tollgate_limiter_save_budgets(made.limiter, &saved, NULL), TOLLGATE_STATUS_STRUCT_SIZE);
    rig_free(&made);
}

/* A library without it has the functions all the same. */
static void what_is_not_built_in_says_so(void)
{
    rig made = rig_of(preset("adr"), 100, TOLLGATE_ON_FULL_DENY);
    EXPECT_EQ(tollgate_limiter_keep_assignments_in(made.limiter, path, strlen(path), NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_limiter_reload_assignments(made.limiter, NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_limiter_write_status(made.limiter, path, strlen(path), NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    tollgate_budgets_loaded loaded = loaded_new();
    tollgate_budgets_saved saved = saved_new();
    EXPECT_EQ(tollgate_limiter_keep_budgets_in(made.limiter, path, strlen(path), &loaded, NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    EXPECT_EQ(tollgate_limiter_save_budgets(made.limiter, &saved, NULL), TOLLGATE_STATUS_NOT_BUILT_IN);
    rig_free(&made);
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/assignments.json", folder);
    if (tollgate_features() & TOLLGATE_FEATURE_PERSIST) {
        what_is_decided_outlives_the_limiter();
        a_status_document_is_written();
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
