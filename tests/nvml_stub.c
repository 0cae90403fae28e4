/* A stand-in for libnvidia-ml.so.1: tells what the file `nvml` beside it says, read again whenever that changes.

   One fact a line: WHO WHAT ARGUMENTS. WHO is a card (0), an instance of it (0.1), or * for all and for none.
     * count 2                          * fail nvmlInit_v2 9          0 fail nvmlDeviceGetMemoryInfo_v2 15
     * driver 580.82.07
     0 uuid GPU-...                     0 hang nvmlDeviceGetUUID      0 crash nvmlDeviceGetUUID
     0 name NVIDIA H100                 * slow nvmlInit_v2 500        (milliseconds)
     0 pci 00000000:01:00.0             0 memory TOTAL RESERVED FREE USED    (bytes; no line: not supported)
     0 display 1                        0 mig 1                       (no line: not supported)
     0.1 gi 3                           0 compute|mps|graphics PID BYTES [BYTES at every second look]
   BYTES -1 = not available, -2 = not listed at that look. Every init is a line in the file nvml.inits, every hang one in nvml.hangs.
   NO_MEMORY_V2, NO_PROCESSES_V3: an older driver's library, which has no such function. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL = 7, UNKNOWN = 999 };
enum { CARDS = 16, PARTS = 9, LISTED = 64, RULES = 128, WORD = 96 };

typedef unsigned long long ull;
typedef struct { unsigned pid; long long used[2]; } Listed;
typedef struct {
    int known, memory, display, mig, gi, listed[3];
    char uuid[WORD], name[WORD], pci[WORD];
    ull total, reserved, free, used;
    Listed list[3][LISTED];
} Thing;
typedef struct { int card, part; char what[16], function[WORD]; int number; } Rule;

static Thing things[CARDS][PARTS]; /* [card][0] is the card, [card][1 + n] its instance n */
static unsigned looks[CARDS][PARTS][3];
static Rule rules[RULES];
static int count, ruled, ready;
static char version[WORD];
static struct stat last;

static const char *path(void) {
    static char found[4096];
    Dl_info library;
    if (!found[0] && dladdr((void *)path, &library)) {
        const char *slash = strrchr(library.dli_fname, '/');
        int length = slash ? (int)(slash + 1 - library.dli_fname) : 0;
        snprintf(found, sizeof found, "%.*snvml", length, library.dli_fname);
    }
    return found;
}

static void note(const char *what, const char *function) {
    char beside[4200];
    snprintf(beside, sizeof beside, "%s.%s", path(), what);
    FILE *file = fopen(beside, "a");
    if (file) { fprintf(file, "%s\n", function); fclose(file); }
}

static void copy(char *to, const char *from) {
    snprintf(to, WORD, "%s", from);
    to[strcspn(to, "\n")] = 0;
}

static void learn(char *line) {
    static const char *lists[] = {"compute", "mps", "graphics"};
    char who[16], what[16], rest[256] = "", function[WORD] = "";
    int card = -1, part = -1, number = 0;
    if (sscanf(line, "%15s %15s %255[^\n]", who, what, rest) < 2) return;
    if (who[0] != '*' && sscanf(who, "%d.%d", &card, &part) < 1) return;
    if (!strcmp(what, "count")) { count = atoi(rest); return; }
    if (!strcmp(what, "driver")) { copy(version, rest); return; }
    if (!strcmp(what, "fail") || !strcmp(what, "hang") || !strcmp(what, "crash") || !strcmp(what, "slow")) {
        sscanf(rest, "%95s %d", function, &number);
        Rule *rule = &rules[ruled++ % RULES];
        rule->card = card; rule->part = part; rule->number = number;
        copy(rule->what, what); copy(rule->function, function);
        return;
    }
    if (card < 0 || card >= CARDS || part + 1 >= PARTS) return;
    Thing *thing = &things[card][part + 1];
    thing->known = 1;
    if (!strcmp(what, "uuid")) copy(thing->uuid, rest);
    if (!strcmp(what, "name")) copy(thing->name, rest);
    if (!strcmp(what, "pci")) copy(thing->pci, rest);
    if (!strcmp(what, "display")) thing->display = atoi(rest);
    if (!strcmp(what, "mig")) thing->mig = atoi(rest);
    if (!strcmp(what, "gi")) thing->gi = atoi(rest);
    if (!strcmp(what, "memory"))
        thing->memory = sscanf(rest, "%llu %llu %llu %llu", &thing->total, &thing->reserved, &thing->free, &thing->used) == 4;
    for (int kind = 0; kind < 3; kind++)
        if (!strcmp(what, lists[kind]) && thing->listed[kind] < LISTED) {
            Listed *one = &thing->list[kind][thing->listed[kind]++];
            if (sscanf(rest, "%u %lld %lld", &one->pid, &one->used[0], &one->used[1]) < 3) one->used[1] = one->used[0];
        }
}

static void read_again(void) {
    struct stat seen;
    if (stat(path(), &seen)) { count = ruled = 0; return; }
    if (seen.st_ino == last.st_ino && !memcmp(&seen.st_mtim, &last.st_mtim, sizeof seen.st_mtim)) return;
    last = seen;
    FILE *file = fopen(path(), "r");
    if (!file) return;
    count = ruled = 0;
    memset(things, 0, sizeof things);
    for (int card = 0; card < CARDS; card++)
        for (int part = 0; part < PARTS; part++) things[card][part].mig = things[card][part].display = -1;
    char line[512];
    while (fgets(line, sizeof line, file)) learn(line);
    fclose(file);
}

static int enter(const char *function, int card, int part) {
    read_again();
    for (int n = 0; n < ruled; n++) {
        Rule *rule = &rules[n];
        if (strcmp(rule->function, function)) continue;
        if (rule->card >= 0 && (rule->card != card || rule->part != part)) continue;
        if (!strcmp(rule->what, "hang")) for (note("hangs", function);;) pause();
        if (!strcmp(rule->what, "crash")) raise(SIGSEGV);
        if (!strcmp(rule->what, "slow")) nanosleep(&(struct timespec){rule->number / 1000, rule->number % 1000 * 1000000L}, 0);
        if (!strcmp(rule->what, "fail")) return rule->number;
    }
    return ready || !strncmp(function, "nvmlInit", 8) ? SUCCESS : UNINITIALIZED;
}

/* A device's handle is its place in `things`. */
#define CARD_OF(handle) ((int)(((Thing *)(handle) - &things[0][0]) / PARTS))
#define PART_OF(handle) ((int)(((Thing *)(handle) - &things[0][0]) % PARTS) - 1)
#define ENTER(handle) do { int code = enter(__func__, CARD_OF(handle), PART_OF(handle)); if (code) return code; } while (0)
#define ENTER_ALL() do { int code = enter(__func__, -1, -1); if (code) return code; } while (0)

static int start(const char *function) {
    note("inits", function);
    int code = enter("nvmlInit_v2", -1, -1);
    ready = !code;
    return code;
}

int nvmlInit_v2(void) { return start(__func__); }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return start(__func__); }
int nvmlShutdown(void) { ENTER_ALL(); ready = 0; return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case 27: return "Not Ready";
    case 28: return "GPU not found";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *answer, unsigned length) {
    ENTER_ALL();
    snprintf(answer, length, "%s", version);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *answer) { ENTER_ALL(); *answer = count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **answer) {
    int code = enter(__func__, index, -1);
    if (code) return code;
    if ((int)index >= count || index >= CARDS) return INVALID;
    *answer = &things[index][0];
    return SUCCESS;
}

static int say(const char *word, char *answer, unsigned length) {
    if (!word[0]) return NOT_SUPPORTED;
    if (strlen(word) >= length) return TOO_SMALL;
    strcpy(answer, word);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *answer, unsigned length) {
    ENTER(device);
    return say(((Thing *)device)->uuid, answer, length);
}

int nvmlDeviceGetName(void *device, char *answer, unsigned length) {
    ENTER(device);
    return say(((Thing *)device)->name, answer, length);
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;

int nvmlDeviceGetPciInfo_v3(void *device, Pci *answer) {
    ENTER(device);
    memset(answer, 0, sizeof *answer);
    sscanf(((Thing *)device)->pci, "%x:%x:%x", &answer->domain, &answer->bus, &answer->device);
    return say(((Thing *)device)->pci, answer->bus_id, sizeof answer->bus_id);
}

int nvmlDeviceGetDisplayActive(void *device, unsigned *answer) {
    ENTER(device);
    if (((Thing *)device)->display < 0) return NOT_SUPPORTED;
    *answer = ((Thing *)device)->display;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, ull *answer) {
    Thing *thing = device;
    ENTER(device);
    if (!thing->memory) return NOT_SUPPORTED;
    answer[0] = thing->total; answer[1] = thing->free; answer[2] = thing->used + thing->reserved;
    return SUCCESS;
}

#ifndef NO_MEMORY_V2
typedef struct { unsigned version; ull total, reserved, free, used; } Memory;

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *answer) {
    Thing *thing = device;
    ENTER(device);
    if (answer->version != (sizeof(Memory) | 2 << 24)) return 25;
    if (!thing->memory) return NOT_SUPPORTED;
    answer->total = thing->total; answer->reserved = thing->reserved;
    answer->free = thing->free; answer->used = thing->used;
    return SUCCESS;
}
#endif

typedef struct { unsigned pid; ull used; unsigned gpu_instance, compute_instance; } Process;

static int list(Thing *thing, int kind, unsigned *length, Process *answer) {
    unsigned here = thing->listed[kind], room = *length, written = 0;
    *length = here;
    if (here == 0) return SUCCESS;
    if (room < here || !answer) return TOO_SMALL;
    unsigned look = looks[CARD_OF(thing)][PART_OF(thing) + 1][kind]++ % 2;
    for (unsigned n = 0; n < here; n++) {
        Listed *one = &thing->list[kind][n];
        if (one->used[look] == -2) continue;
        answer[written++] = (Process){one->pid, (ull)one->used[look], 0xffffffff, 0xffffffff};
    }
    *length = written;
    return SUCCESS;
}

#define LIST(name, kind) int name(void *device, unsigned *length, Process *answer) \
    { ENTER(device); return list(device, kind, length, answer); }

#ifdef NO_PROCESSES_V3
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 2)
#else
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 2)
#endif

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ENTER(device);
    if (((Thing *)device)->mig < 0) return NOT_SUPPORTED;
    *current = *pending = ((Thing *)device)->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *answer) { ENTER(device); *answer = PARTS - 1; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **answer) {
    int code = enter(__func__, CARD_OF(device), index);
    if (code) return code;
    if (index + 1 >= PARTS || !((Thing *)device)[index + 1].known) return NOT_FOUND;
    *answer = &((Thing *)device)[index + 1];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *device, unsigned *answer) {
    ENTER(device);
    *answer = ((Thing *)device)->gi;
    return SUCCESS;
}
