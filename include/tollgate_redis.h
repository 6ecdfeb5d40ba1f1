/*
 * tollgate over Redis or Valkey: limits that many machines share.
 *
 * What is here is in libtollgate_redis, which has everything of tollgate.h too:
 * link it in place of libtollgate, not beside it, because a handle belongs to the
 * library that made it.
 *
 *     #include <stdio.h>
 *     #include <tollgate_redis.h>
 *
 *     static const char POLICY[] = "[lanes]\n'http' = '100/minute'\n", SECRET[] = "16 bytes, random";
 *     static const char URL[] = "redis://10.0.0.5";
 *
 *     int main(void) {
 *       tollgate_cluster_options cluster = {.struct_size = sizeof cluster};
 *       cluster.secret = SECRET;
 *       cluster.secret_len = sizeof SECRET - 1;
 *       tollgate_limiter_options options = {.struct_size = sizeof options};
 *       options.cluster = &cluster;
 *       tollgate_engine_options to = {.struct_size = sizeof to};
 *       to.urls = URL;
 *       to.urls_len = sizeof URL - 1;
 *       to.nodes_at_least = 3;
 *
 *       tollgate_error error = {.struct_size = sizeof error};
 *       tollgate_policy *policy = NULL;
 *       tollgate_limiter *limiter = NULL;
 *       tollgate_engine *engine = NULL;
 *       if (tollgate_policy_from_toml(TOLLGATE_LITERAL(POLICY), &error, &policy) ||
 *           tollgate_limiter_new(policy, &options, &error, &limiter) ||
 *           tollgate_engine_new(limiter, &to, &error, &engine)) {
 *         fprintf(stderr, "%s\n", error.message);
 *         return 1;
 *       }
 *       tollgate_request request = {"user:42", 7, 1, 0, TOLLGATE_NONE, NULL};
 *       tollgate_verdict verdict = {0};
 *       tollgate_check(limiter, &request, TOLLGATE_NOW, 0, &verdict);
 *       if (verdict.decision == TOLLGATE_DECISION_DENY && verdict.source == TOLLGATE_SOURCE_PENDING)
 *         puts("try again in a moment: the store is being asked");
 *       tollgate_engine_free(engine);
 *       tollgate_limiter_free(limiter);
 *       tollgate_policy_free(policy);
 *       return 0;
 *     }
 *
 * The rules of tollgate.h hold, and two more:
 *
 * - Threads. An engine has two threads, with all signals blocked. They call nothing back.
 * - Forks. A child has no engine. In it, checks take the store for lost and spend
 *   none of the credit that was copied; start an engine there if it checks anything.
 *
 * Generated from src/ffi/cluster.rs and bindings/c/redis/src: change the sources and
 * run `make header`.
 */

#ifndef TOLLGATE_REDIS_H
#define TOLLGATE_REDIS_H

#include "tollgate.h"

#ifdef __cplusplus
extern "C" {
#endif


/* -------------------------------------------------------------------------------------------------
 * Machines: lanes that machines share over one Redis or Valkey, the store.
 *
 * Name the options here in tollgate_limiter_options, and then start an engine for
 * the limiter. A check never waits for the store: it spends credit, which the
 * store was debited for, or a few tokens in advance, or it denies by what the
 * store last said. Buckets can be shared; lanes of other kinds have to be left to
 * each machine. A lane that is shared cannot be reserved.
 *
 * With N machines, a capacity C, a rate r and a slack s, all of them together
 * admit in any window of length d at most C (1 + s) + r d, or C + N + r d where
 * s C is less than 2 N.
 */

/** What a machine does with a lane while the store does not answer. */
typedef int32_t tollgate_when_lost;
enum {
  /** Of a lane: as tollgate_cluster_options has it. There: the next. */
  TOLLGATE_WHEN_LOST_DEFAULT = 0,
  /** Each machine allows its share: the limit divided by the number of machines. */
  TOLLGATE_WHEN_LOST_SHARE = 1,
  /** Everything is denied. */
  TOLLGATE_WHEN_LOST_CLOSED = 2,
  /** Everything is allowed, and nothing is counted. */
  TOLLGATE_WHEN_LOST_OPEN = 3,
  /** Each machine allows the whole limit. */
  TOLLGATE_WHEN_LOST_ALONE = 4,
};

/**
 * Where the answer of a lane that machines share came from: the member source of
 * a tollgate_verdict.
 */
typedef int32_t tollgate_source;
enum {
  /**
   * No machine had to be asked: the lane is not shared, the agent is exempt, the
   * limit denies everything, or conduct or a total denied it.
   */
  TOLLGATE_SOURCE_NONE = 0,
  /** Allowed from credit: the store was debited before. */
  TOLLGATE_SOURCE_CREDIT = 1,
  /** Allowed in advance: the store is debited as soon as it is asked. */
  TOLLGATE_SOURCE_ADVANCE = 2,
  /** Denied by what the store last said. */
  TOLLGATE_SOURCE_VIEW = 3,
  /**
   * Denied because only the store knows, and it is being asked: the same request
   * may pass after a round trip, which is about retry_after_ns. No violation.
   */
  TOLLGATE_SOURCE_PENDING = 4,
  /** The store is lost, and this is the answer of the machine's share. */
  TOLLGATE_SOURCE_SHARE = 5,
  /** The store is lost, and the lane is closed. */
  TOLLGATE_SOURCE_CLOSED = 6,
  /** The store is lost, and the lane is open. */
  TOLLGATE_SOURCE_OPEN = 7,
  /** The store is lost, and this is the answer of the whole limit, on this machine alone. */
  TOLLGATE_SOURCE_ALONE = 8,
};

/** How machines share one lane, where it differs from the others. It never grows. */
typedef struct tollgate_cluster_lane {
  /** The lane's name, in UTF-8. */
  const char *name;
  /** Its length in bytes. */
  size_t name_len;
  /**
   * 1: machines do not share it, and each has it for itself. The members below
   * are then 0.
   */
  uint32_t own;
  /**
   * 1: nothing is spent in advance. A machine without credit denies with
   * TOLLGATE_SOURCE_PENDING.
   */
  uint32_t exact;
  /** As in tollgate_cluster_options. 0: as there. */
  uint32_t slack_percent;
  /** A tollgate_when_lost. */
  int32_t when_lost;
} tollgate_cluster_lane;

/**
 * How machines share the lanes of a limiter: all of them, unless an element of
 * lanes says otherwise.
 */
struct tollgate_cluster_options {
  /** Set it to sizeof(tollgate_cluster_options). */
  uint32_t struct_size;
  /**
   * How much of a lane's capacity all machines together may hold in credit and owe
   * in advance, 1 to 100. 0: 10. More lets more checks be answered without the
   * store, and lets more pass in any window.
   */
  uint32_t slack_percent;
  /**
   * The same on every machine, at least 16 bytes, random. The store knows an agent
   * by a hash of its id with this secret. It is not kept, and never shown.
   */
  const void *secret;
  /** Its length in bytes. */
  size_t secret_len;
  /** Lanes that are shared otherwise than the others, or not at all; NULL if there are none. */
  const tollgate_cluster_lane *lanes;
  /** How many there are. */
  size_t lanes_count;
  /** A tollgate_when_lost. */
  int32_t when_lost;
  /** 0. */
  uint32_t reserved;
};


/* -------------------------------------------------------------------------------------------------
 * Engines: the threads through which a limiter settles with the store, and hears
 * what operators decide on other machines.
 */

/** Which servers the URLs of tollgate_engine_options name. */
typedef int32_t tollgate_servers;
enum {
  /** One server. */
  TOLLGATE_SERVERS_ONE = 0,
  /** Sentinels, which are asked for the master anew for each connection. */
  TOLLGATE_SERVERS_SENTINEL = 1,
  /** Some servers of a Redis Cluster; they say which others there are. */
  TOLLGATE_SERVERS_CLUSTER = 2,
};

/**
 * Where the store is, and who this machine is to it. Zero in every member but
 * struct_size and urls is the default; a text that is not there is NULL with the
 * length 0. Texts are UTF-8.
 */
typedef struct tollgate_engine_options {
  /** Set it to sizeof(tollgate_engine_options). */
  uint32_t struct_size;
  /** A tollgate_servers. */
  int32_t servers;
  /**
   * A URL, or several with a space between two: redis://host:port/database, whose
   * port and database may be left out, rediss:// for TLS, or redis+unix:///path. One
   * may have user:password@ before the host.
   */
  const char *urls;
  /** Its length in bytes. */
  size_t urls_len;
  /** With TOLLGATE_SERVERS_SENTINEL: the master's name, as in "sentinel monitor NAME". */
  const char *master;
  /** Its length in bytes. */
  size_t master_len;
  /** The user on the servers, unless the URL has one. NULL: their default user. */
  const char *user;
  /** Its length in bytes. */
  size_t user_len;
  /** The user's password. No error and no status shows it. */
  const char *password;
  /** Its length in bytes. */
  size_t password_len;
  /** The user on the sentinels. */
  const char *sentinel_user;
  /** Its length in bytes. */
  size_t sentinel_user_len;
  /** The password on the sentinels. */
  const char *sentinel_password;
  /** Its length in bytes. */
  size_t sentinel_password_len;
  /** For rediss://: the certificates to believe, as PEM. NULL: those of the system. */
  const char *tls_ca;
  /** Its length in bytes. */
  size_t tls_ca_len;
  /** The certificate to show, as PEM. NULL: none. */
  const char *tls_certificate;
  /** Its length in bytes. */
  size_t tls_certificate_len;
  /** Its private key, as PEM. */
  const char *tls_key;
  /** Its length in bytes. */
  size_t tls_key_len;
  /**
   * How many machines there are at least, up to 65,535. 0: 1. More are counted as
   * they come; set it to the usual number, so that a machine that starts without
   * the store knows its share.
   */
  uint32_t nodes_at_least;
  /** 0. */
  uint32_t reserved;
  /** How long an answer may take before the store counts as lost, 50 ms to 1 s. 0: 200 ms. */
  uint64_t timeout_ns;
} tollgate_engine_options;

/** A running engine. */
typedef struct tollgate_engine tollgate_engine;

/**
 * Starts an engine for a limiter that was built with cluster in its options.
 * Returns at once: until the store has answered it counts as lost, and checks do
 * as when_lost says. Free the engine with tollgate_engine_free; it keeps the
 * limiter's memory, so it makes no difference which of them is freed first.
 *
 * A limiter has one engine at a time. In a process that was forked while one ran,
 * another one can be started for the copy of the limiter; it begins after about a
 * second, when the credit has ended that was copied too.
 *
 * Status: INVALID_OPTION, STRUCT_SIZE, NOT_UTF8, TEXT_TOO_LONG, OUT_OF_MEMORY if
 * the system refuses a thread.
 */
tollgate_status tollgate_engine_new(tollgate_limiter *limiter,
                                    const tollgate_engine_options *options,
                                    tollgate_error *error_out,
                                    tollgate_engine **engine_out);

/**
 * Ends an engine and frees it. NULL is allowed. It gives the credit back that was
 * not spent, pays what is owed, writes what was decided here, and leaves the list of
 * machines; this waits for that, at most four time-outs. From then on checks take the store for lost, until
 * another engine is started.
 */
void tollgate_engine_free(tollgate_engine *engine);


/* -------------------------------------------------------------------------------------------------
 * Status: how an engine gets on, and the lanes that are shared.
 */

/** Reasons for which the store is lost. */
#define TOLLGATE_LOSSES 9
/** Elements of an array that has one for each tollgate_source. */
#define TOLLGATE_SOURCES 9
/** Room for a problem, its NUL included. */
#define TOLLGATE_PROBLEM_BYTES 256
/** Room for the warnings, their NUL included. */
#define TOLLGATE_WARNINGS_BYTES 1024

/** Whether the store answers. */
typedef int32_t tollgate_engine_state;
enum {
  /** It does not. */
  TOLLGATE_ENGINE_STATE_LOST = 0,
  /** It does again, and is being told what was spent meanwhile. Checks still take it for lost. */
  TOLLGATE_ENGINE_STATE_SEEDING = 1,
  /** It does. */
  TOLLGATE_ENGINE_STATE_CONNECTED = 2,
};

/** Why the store was lost: an index of losses_by_reason. */
typedef int32_t tollgate_loss;
enum {
  /** No answer in time. */
  TOLLGATE_LOSS_TIMEOUT = 0,
  /** The connection was refused or closed. */
  TOLLGATE_LOSS_CONNECTION = 1,
  /** The server is a replica by now. */
  TOLLGATE_LOSS_READ_ONLY = 2,
  /** The server is reading its data. */
  TOLLGATE_LOSS_LOADING = 3,
  /** The server has no memory left. */
  TOLLGATE_LOSS_OUT_OF_MEMORY = 4,
  /** The server does not know the user or the password, or the user may not do what is needed. */
  TOLLGATE_LOSS_NO_AUTH = 5,
  /** The key is on another server of the cluster, or on none. */
  TOLLGATE_LOSS_CLUSTER_DOWN = 6,
  /** The server has forgotten the scripts. */
  TOLLGATE_LOSS_NO_SCRIPT = 7,
  /** Anything else. */
  TOLLGATE_LOSS_OTHER = 8,
};

/** How an engine gets on. Counts are since it was started. */
typedef struct tollgate_engine_view {
  /** Set it to sizeof(tollgate_engine_view) before the call. */
  uint32_t struct_size;
  /** Whether the store answers. */
  tollgate_engine_state state;
  /** For how long it has been so. */
  uint64_t state_for_ns;
  /** How many machines there are, as far as this one knows, and at least as many as it was told. */
  uint32_t nodes;
  /**
   * How many machines have shown themselves lately, this one among them; 0 before
   * the first connection.
   */
  uint32_t nodes_seen;
  /** How long the store was lost in all, the time before the first connection aside. */
  uint64_t lost_for_ns;
  /** How often it was lost, by tollgate_loss. */
  uint64_t losses_by_reason[TOLLGATE_LOSSES];
  /** How long the last question took. */
  uint64_t round_trip_ns;
  /** How long the slowest question took. */
  uint64_t round_trip_max_ns;
  /** How long all questions took together. */
  uint64_t round_trips_ns;
  /** How many questions there were; one is for many lanes of many agents. */
  uint64_t round_trips;
  /** Lanes of agents that were settled. */
  uint64_t settlements;
  /** Settlements that the store refused. */
  uint64_t refused;
  /** Questions without an answer. */
  uint64_t unanswered;
  /** Tokens that were granted. */
  uint64_t granted;
  /** Tokens that were given back. */
  uint64_t given;
  /** Tokens that were spent in advance, and paid. */
  uint64_t paid;
  /** Lanes of agents of which the store was told what was spent while it was lost. */
  uint64_t seeded;
  /** Lanes of agents that checks have asked about. */
  uint64_t asks;
  /** Those that were not asked about, because too many waited. */
  uint64_t asks_dropped;
  /** How many lanes are shared. */
  uint32_t lane_count;
  /** How many warnings there are. */
  uint32_t warning_count;
  /**
   * 1 if this machine knows all that operators have decided on any machine, as of
   * a fraction of a second ago, else 0.
   */
  uint32_t decisions_current;
  /** 0. */
  uint32_t reserved;
  /** Agents about whom the store has a decision. */
  uint64_t agents_decided;
  /** Decisions of this machine that the store does not know yet. */
  uint64_t decisions_waiting;
  /** Decisions of other machines that cannot be in force here; warnings name the first. */
  uint64_t decisions_refused;
  /** Decisions of this machine that the store has accepted. */
  uint64_t decisions_written;
  /** Decisions of other machines that were put in force here. */
  uint64_t decisions_followed;
  /** Decisions that were written again because the store had lost them. */
  uint64_t decisions_put_back;
  /** Why the store was lost the last time, in NUL-terminated UTF-8; empty if it never was. */
  char last_problem[TOLLGATE_PROBLEM_BYTES];
  /** Why decisions did not follow the last time the connection failed; as last_problem. */
  char decisions_problem[TOLLGATE_PROBLEM_BYTES];
  /**
   * What an operator should change, a warning on each line; NUL-terminated UTF-8,
   * truncated if it is too long.
   */
  char warnings[TOLLGATE_WARNINGS_BYTES];
} tollgate_engine_view;

/** A lane that machines share. It never grows. */
typedef struct tollgate_engine_lane {
  /** Its number. */
  uint32_t lane;
  /** 1 if nothing is spent in advance, else 0. */
  uint32_t exact;
  /** How much of its capacity may be in credit and in advance at once, in percent. */
  uint32_t slack_percent;
  /** What this machine does with it while the store is lost. */
  tollgate_when_lost when_lost;
  /** What it holds when it is full, for an agent of the default plan. */
  uint64_t capacity;
  /** How long a token of the default plan takes to refill. */
  uint64_t token_ns;
  /**
   * How many tokens all machines together may admit to an agent of the default
   * plan beyond its limit, in any window, while the store answers.
   */
  uint64_t bound_tokens;
  /** What this machine has in credit, of all agents together. */
  uint64_t credit;
  /** What it has spent in advance and not paid yet. */
  uint64_t advance;
  /** Its answers, by tollgate_source. */
  uint64_t answers[TOLLGATE_SOURCES];
} tollgate_engine_lane;

/**
 * How an engine gets on. lanes_out gets the lanes that are shared, at most
 * lanes_max of them; TOLLGATE_LANES_MAX are always enough. Takes microseconds, and
 * never waits for the store.
 *
 * Status: STRUCT_SIZE.
 */
tollgate_status tollgate_engine_status(const tollgate_engine *engine,
                                       tollgate_engine_view *view_out,
                                       tollgate_engine_lane *lanes_out,
                                       size_t lanes_max);


#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TOLLGATE_REDIS_H */
