/* A real Redis or Valkey for a C test: started by it, on a Unix socket and no port, and killed at its end. */
#ifndef STORE_H
#define STORE_H

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct store {
    pid_t pid;
    char directory[32];
    char socket[64];
    char url[96];
} store;

static int store_answers(const char *socket_path)
{
    struct sockaddr_un address;
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char pong[7] = "";
    int answers = connect(connection, (struct sockaddr *)&address, sizeof address) == 0
        && write(connection, "PING\r\n", 6) == 6 && read(connection, pong, 7) == 7 && memcmp(pong, "+PONG", 5) == 0;
    close(connection);
    return answers;
}

/* Ends the test if the program is missing under `make test`; else returns 0 and says so. */
static int store_start(store *made, const char *program)
{
    fflush(NULL);
    snprintf(made->directory, sizeof made->directory, P_tmpdir "/tollgate-store-XXXXXX");
    if (mkdtemp(made->directory) == NULL)
        exit(1);
    snprintf(made->socket, sizeof made->socket, "%s/socket", made->directory);
    snprintf(made->url, sizeof made->url, "redis+unix://%s", made->socket);
    made->pid = fork();
    if (made->pid == 0) {
        if (freopen("/dev/null", "w", stdout) != NULL)
            execlp(program, program, "--port", "0", "--unixsocket", made->socket, "--save", "", "--appendonly", "no",
                   "--dir", made->directory, (char *)NULL);
        _exit(127);
    }
    for (int tries = 0; tries < 6000; tries++) {
        int status = 0;
        if (store_answers(made->socket))
            return 1;
        if (waitpid(made->pid, &status, WNOHANG) == made->pid) {
            rmdir(made->directory);
            fprintf(stderr, "not run: %s is missing or does not start\n", program);
            if (getenv("TOLLGATE_ALL") != NULL)
                exit(1);
            return 0;
        }
        usleep(5000);
    }
    fprintf(stderr, "%s does not answer\n", program);
    exit(1);
}

static void store_stop(store *made)
{
    kill(made->pid, SIGKILL);
    waitpid(made->pid, NULL, 0);
    unlink(made->socket);
    rmdir(made->directory);
}

#endif
