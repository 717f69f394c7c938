/* A stand-in for NVIDIA's management library: the C symbols that programs look for, over GPUs
 * that are lines of a text file.
 *
 * The file is named by INTERLANE_NVML_STATE; without it no driver is loaded.  Every call locks
 * it, reads it, acts and writes it back, so that all processes see the same GPUs.  What a call
 * may do follows NVIDIA's documentation: where instances may stand, what is in use, what takes
 * a reset.  Lines, with tabs between fields:
 *
 *   driver   VERSION CUDA
 *   gpu      UUID BUS PCI_ID NAME MIB MIG? MODE PENDING RESETS? LOST? BUSY% MEMORY% MILLIWATTS USED_MIB GRID
 *   profile  GPU SLOT ID NAME SLICES SIZE MOST MIB SM CE DEC ENC JPEG OFA MEDIA STARTS(0,2,4)
 *   gi       GPU ID PROFILE START SIZE
 *   ci       GPU GI ID SLICES
 *   process  GPU PID MIB GI CI        (-1: on the whole GPU); one that has ended holds nothing
 *   fail     SYMBOL ERROR TIMES SKIP  (* for any symbol; -1 times: always; SKIP calls go well)
 *
 * Where STATE.calls exists, the name of every call is written there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
  OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
  NO_DRIVER = 9, LOST = 15, RESET_REQUIRED = 16, IN_USE = 19, NO_ROOM = 23, VERSION = 25
};
enum { GPUS = 16, PROFILES = 24, INSTANCES = 16, PARTS = 64, PROCESSES = 64, FAILURES = 32 };

typedef struct { unsigned slot, id; char name[48]; unsigned slices, size, most, mib, sm, ce, dec,
  enc, jpeg, ofa, media, starts[16], places; } Profile;
typedef struct { unsigned id, profile, start, size; } Gi;
typedef struct { unsigned gi, id, slices; } Ci;
typedef struct { unsigned pid, mib; int gi, ci; } Process;
typedef struct {
  char uuid[96], bus[32], name[96];
  unsigned pci, mib, capable, mode, pending, resets, lost, busy, memory_busy, power, used, grid;
  Profile profiles[PROFILES]; unsigned n_profiles;
  Gi gis[INSTANCES]; unsigned n_gis;
  Ci cis[PARTS]; unsigned n_cis;
  Process processes[PROCESSES]; unsigned n_processes;
} Gpu;
typedef struct { char symbol[64]; int error, times, skip; } Failure;
typedef struct {
  char driver[80]; int cuda;
  Gpu gpus[GPUS]; unsigned n_gpus;
  Failure failures[FAILURES]; unsigned n_failures;
} World;

static World world;
static int lock = -1, opened, changed;
static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER;

/* -- the file ------------------------------------------------------------------------------ */

static char *field(char **at) {
  char *found = strsep(at, "\t");
  return found ? found : "";
}
static unsigned number(char **at) { return (unsigned)strtoul(field(at), NULL, 10); }
static int signed_number(char **at) { return (int)strtol(field(at), NULL, 10); }
static void text(char *to, size_t size, char **at) { snprintf(to, size, "%s", field(at)); }

static Gpu *listed(char **at) {
  unsigned index = number(at);
  return index < world.n_gpus ? &world.gpus[index] : NULL;
}

static void read_gpu(char **at) {
  Gpu *gpu = &world.gpus[world.n_gpus++];
  text(gpu->uuid, sizeof gpu->uuid, at);
  text(gpu->bus, sizeof gpu->bus, at);
  gpu->pci = number(at);
  text(gpu->name, sizeof gpu->name, at);
  unsigned *fields[] = {&gpu->mib, &gpu->capable, &gpu->mode, &gpu->pending, &gpu->resets,
    &gpu->lost, &gpu->busy, &gpu->memory_busy, &gpu->power, &gpu->used, &gpu->grid};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) *fields[i] = number(at);
}

static void read_profile(char **at) {
  Gpu *gpu = listed(at);
  if (!gpu || gpu->n_profiles == PROFILES) return;
  Profile *one = &gpu->profiles[gpu->n_profiles++];
  one->slot = number(at);
  one->id = number(at);
  text(one->name, sizeof one->name, at);
  unsigned *fields[] = {&one->slices, &one->size, &one->most, &one->mib, &one->sm, &one->ce,
    &one->dec, &one->enc, &one->jpeg, &one->ofa, &one->media};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) *fields[i] = number(at);
  char *starts = field(at), *start;
  while ((start = strsep(&starts, ",")) && *start && one->places < 16)
    one->starts[one->places++] = (unsigned)strtoul(start, NULL, 10);
}

static int lives(unsigned pid) { return kill((pid_t)pid, 0) == 0 || errno == EPERM; }

static void read_line(char *line) {
  char *at = line, *kind = field(&at);
  if (!strcmp(kind, "driver")) {
    text(world.driver, sizeof world.driver, &at);
    world.cuda = signed_number(&at);
  } else if (!strcmp(kind, "gpu") && world.n_gpus < GPUS) {
    read_gpu(&at);
  } else if (!strcmp(kind, "profile")) {
    read_profile(&at);
  } else if (!strcmp(kind, "gi")) {
    Gpu *gpu = listed(&at);
    if (gpu && gpu->n_gis < INSTANCES) {
      Gi *one = &gpu->gis[gpu->n_gis++];
      one->id = number(&at), one->profile = number(&at);
      one->start = number(&at), one->size = number(&at);
    }
  } else if (!strcmp(kind, "ci")) {
    Gpu *gpu = listed(&at);
    if (gpu && gpu->n_cis < PARTS) {
      Ci *one = &gpu->cis[gpu->n_cis++];
      one->gi = number(&at), one->id = number(&at), one->slices = number(&at);
    }
  } else if (!strcmp(kind, "process")) {
    Gpu *gpu = listed(&at);
    if (gpu && gpu->n_processes < PROCESSES) {
      Process one = {0};
      one.pid = number(&at), one.mib = number(&at);
      one.gi = signed_number(&at), one.ci = signed_number(&at);
      if (lives(one.pid)) gpu->processes[gpu->n_processes++] = one;
    }
  } else if (!strcmp(kind, "fail") && world.n_failures < FAILURES) {
    Failure *one = &world.failures[world.n_failures++];
    text(one->symbol, sizeof one->symbol, &at);
    one->error = signed_number(&at), one->times = signed_number(&at);
    one->skip = signed_number(&at);
  }
}

static void write_gpu(FILE *file, unsigned index, const Gpu *gpu) {
  for (unsigned i = 0; i < gpu->n_profiles; i++) {
    const Profile *p = &gpu->profiles[i];
    fprintf(file, "profile\t%u\t%u\t%u\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t", index,
      p->slot, p->id, p->name, p->slices, p->size, p->most, p->mib, p->sm, p->ce, p->dec, p->enc,
      p->jpeg, p->ofa, p->media);
    for (unsigned s = 0; s < p->places; s++) fprintf(file, s ? ",%u" : "%u", p->starts[s]);
    fputc('\n', file);
  }
  for (unsigned i = 0; i < gpu->n_gis; i++)
    fprintf(file, "gi\t%u\t%u\t%u\t%u\t%u\n", index, gpu->gis[i].id, gpu->gis[i].profile,
      gpu->gis[i].start, gpu->gis[i].size);
  for (unsigned i = 0; i < gpu->n_cis; i++)
    fprintf(file, "ci\t%u\t%u\t%u\t%u\n", index, gpu->cis[i].gi, gpu->cis[i].id,
      gpu->cis[i].slices);
  for (unsigned i = 0; i < gpu->n_processes; i++)
    fprintf(file, "process\t%u\t%u\t%u\t%d\t%d\n", index, gpu->processes[i].pid,
      gpu->processes[i].mib, gpu->processes[i].gi, gpu->processes[i].ci);
}

static void write_world(const char *path) {
  char beside[4096];
  snprintf(beside, sizeof beside, "%s.new", path);
  FILE *file = fopen(beside, "we");
  if (!file) return;
  fprintf(file, "driver\t%s\t%d\n", world.driver, world.cuda);
  for (unsigned i = 0; i < world.n_gpus; i++) {
    const Gpu *g = &world.gpus[i];
    fprintf(file, "gpu\t%s\t%s\t%u\t%s\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\t%u\n", g->uuid, g->bus,
      g->pci, g->name, g->mib, g->capable, g->mode, g->pending, g->resets, g->lost, g->busy,
      g->memory_busy, g->power, g->used, g->grid);
  }
  for (unsigned i = 0; i < world.n_gpus; i++) write_gpu(file, i, &world.gpus[i]);
  for (unsigned i = 0; i < world.n_failures; i++) {
    const Failure *f = &world.failures[i];
    if (f->times) fprintf(file, "fail\t%s\t%d\t%d\t%d\n", f->symbol, f->error, f->times, f->skip);
  }
  fclose(file);
  rename(beside, path);
}

static int unlocked(int error) {
  if (changed) write_world(getenv("INTERLANE_NVML_STATE"));
  if (lock >= 0) close(lock);
  lock = -1, changed = 0;
  pthread_mutex_unlock(&one_thread);
  return error;
}

static void noted(const char *path, const char *symbol) {
  char calls[4096], line[128];
  snprintf(calls, sizeof calls, "%s.calls", path);
  int fd = open(calls, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return;
  int size = snprintf(line, sizeof line, "%s\n", symbol);
  if (write(fd, line, (size_t)size) < 0) { /* who reads it misses a line */ }
  close(fd);
}

static int told_to_fail(const char *symbol) {
  for (unsigned i = 0; i < world.n_failures; i++) {
    Failure *one = &world.failures[i];
    if (strcmp(one->symbol, "*") && strcmp(one->symbol, symbol)) continue;
    if (!one->times) continue;
    changed = 1;
    if (one->skip > 0) { one->skip--; continue; }
    if (one->times > 0) one->times--;
    return one->error;
  }
  return OK;
}

/* Lock and read the file; every call begins so, and ends with unlocked(). */
static int begun(const char *symbol) {
  const char *path = getenv("INTERLANE_NVML_STATE");
  if (!path) return NO_DRIVER;
  char beside[4096];
  snprintf(beside, sizeof beside, "%s.lock", path);
  pthread_mutex_lock(&one_thread);
  lock = open(beside, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return unlocked(NO_DRIVER);
  while (flock(lock, LOCK_EX) && errno == EINTR) {}
  memset(&world, 0, sizeof world);
  FILE *file = fopen(path, "re");
  if (!file) return unlocked(NO_DRIVER);
  char *line = NULL;
  size_t size = 0;
  while (getline(&line, &size, file) > 0) {
    line[strcspn(line, "\n")] = 0;
    read_line(line);
  }
  free(line);
  fclose(file);
  noted(path, symbol);
  int error = told_to_fail(symbol);
  return error ? unlocked(error) : OK;
}

#define BEGIN(symbol) do { int error_ = begun(symbol); if (error_) return error_; \
  if (!opened) return unlocked(UNINITIALIZED); } while (0)

/* -- handles: what they point to is never read, they are numbers --------------------------- */

typedef void *Handle;
enum { WHOLE = 1, SLICE = 2, GI = 3, CI = 4 };

static Handle handle(unsigned kind, unsigned gpu, unsigned gi, unsigned ci) {
  return (Handle)(uintptr_t)(((uint64_t)kind << 36) | ((uint64_t)gpu << 24) | (gi << 8) | ci | 1u << 20);
}
static unsigned kind_of(Handle one) { return (unsigned)((uint64_t)(uintptr_t)one >> 36); }
static unsigned index_of(Handle one) { return (unsigned)((uintptr_t)one >> 24) & 0xfff; }
static unsigned gi_of(Handle one) { return (unsigned)((uintptr_t)one >> 8) & 0xfff; }
static unsigned ci_of(Handle one) { return (unsigned)(uintptr_t)one & 0xff; }

static int found(Handle one, Gpu **gpu) {
  if (!one || index_of(one) >= world.n_gpus) return INVALID;
  *gpu = &world.gpus[index_of(one)];
  return (*gpu)->lost ? LOST : OK;
}

static Gi *gi_with(Gpu *gpu, unsigned id) {
  for (unsigned i = 0; i < gpu->n_gis; i++) if (gpu->gis[i].id == id) return &gpu->gis[i];
  return NULL;
}
static Ci *ci_with(Gpu *gpu, unsigned gi, unsigned id) {
  for (unsigned i = 0; i < gpu->n_cis; i++)
    if (gpu->cis[i].gi == gi && gpu->cis[i].id == id) return &gpu->cis[i];
  return NULL;
}
static Profile *profile_with(Gpu *gpu, unsigned id) {
  for (unsigned i = 0; i < gpu->n_profiles; i++)
    if (gpu->profiles[i].id == id) return &gpu->profiles[i];
  return NULL;
}

/* Find a whole GPU, or a slice that is still there. */
static int seen(Handle one, Gpu **gpu) {
  int error = found(one, gpu);
  if (error) return error;
  if (kind_of(one) == WHOLE) return OK;
  if (kind_of(one) != SLICE) return INVALID;
  return ci_with(*gpu, gi_of(one), ci_of(one)) ? OK : INVALID;
}

#define SEEN(symbol, one, gpu) Gpu *gpu = NULL; do { BEGIN(symbol); \
  int error_ = seen(one, &gpu); if (error_) return unlocked(error_); } while (0)
#define CUT(symbol, one, gpu) SEEN(symbol, one, gpu); do { \
  if (kind_of(one) != WHOLE) return unlocked(INVALID); \
  if (!gpu->capable) return unlocked(UNSUPPORTED); } while (0)
#define INSTANCE(symbol, one, gpu, gi) Gpu *gpu = NULL; Gi *gi = NULL; do { BEGIN(symbol); \
  if (kind_of(one) != GI && kind_of(one) != CI) return unlocked(INVALID); \
  int error_ = found(one, &gpu); if (error_) return unlocked(error_); \
  gi = gi_with(gpu, gi_of(one)); if (!gi) return unlocked(NOT_FOUND); } while (0)

static int held_by_process(const Gpu *gpu, int gi, int ci) {
  for (unsigned i = 0; i < gpu->n_processes; i++) {
    const Process *one = &gpu->processes[i];
    if ((gi < 0 || one->gi == gi) && (ci < 0 || one->ci == ci)) return 1;
  }
  return 0;
}

/* -- the library --------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  int error = begun("nvmlInit");
  if (error) return error;
  opened++;
  return unlocked(OK);
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
  BEGIN("nvmlShutdown");
  opened--;
  return unlocked(OK);
}

const char *nvmlErrorString(int error) {
  switch (error) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NO_DRIVER: return "Driver Not Loaded";
    case 10: return "Timeout";
    case LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case IN_USE: return "In use by another client";
    case NO_ROOM: return "Insufficient Resources";
    case VERSION: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

static int copied(char *to, unsigned size, const char *from) {
  return (unsigned)snprintf(to, size, "%s", from) < size ? OK : TOO_SMALL;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  BEGIN("nvmlSystemGetDriverVersion");
  return unlocked(copied(version, size, world.driver));
}
int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
  BEGIN("nvmlSystemGetNVMLVersion");
  char said[96];
  snprintf(said, sizeof said, "13.%s", world.driver);
  return unlocked(copied(version, size, said));
}
int nvmlSystemGetCudaDriverVersion(int *version) {
  BEGIN("nvmlSystemGetCudaDriverVersion");
  *version = world.cuda;
  return unlocked(OK);
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  BEGIN("nvmlDeviceGetCount");
  *count = world.n_gpus;
  return unlocked(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle *device) {
  BEGIN("nvmlDeviceGetHandleByIndex");
  if (index >= world.n_gpus) return unlocked(INVALID);
  if (world.gpus[index].lost) return unlocked(LOST);
  *device = handle(WHOLE, index, 0, 0);
  return unlocked(OK);
}

static void slice_uuid(const Gpu *gpu, unsigned gi, unsigned ci, char *to, size_t size) {
  uint64_t a = 14695981039346656037u;
  for (const char *at = gpu->uuid; *at; at++) a = (a ^ (unsigned char)*at) * 1099511628211u;
  a = (a ^ (gi + 1)) * 1099511628211u;
  a = (a ^ (ci + 101)) * 1099511628211u;
  uint64_t b = (a ^ (a >> 29)) * 0xbf58476d1ce4e5b9u;
  snprintf(to, size, "MIG-%08x-%04x-5%03x-8%03x-%012llx", (unsigned)(a >> 32),
    (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 52) & 0xfff,
    (unsigned long long)(b & 0xffffffffffffu));
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *device) {
  BEGIN("nvmlDeviceGetHandleByUUID");
  for (unsigned i = 0; i < world.n_gpus; i++) {
    Gpu *gpu = &world.gpus[i];
    if (!strcmp(gpu->uuid, uuid)) {
      if (gpu->lost) return unlocked(LOST);
      *device = handle(WHOLE, i, 0, 0);
      return unlocked(OK);
    }
    for (unsigned c = 0; c < gpu->n_cis; c++) {
      char name[96];
      slice_uuid(gpu, gpu->cis[c].gi, gpu->cis[c].id, name, sizeof name);
      if (!strcmp(name, uuid)) {
        *device = handle(SLICE, i, gpu->cis[c].gi, gpu->cis[c].id);
        return unlocked(gpu->lost ? LOST : OK);
      }
    }
  }
  return unlocked(NOT_FOUND);
}

int nvmlDeviceGetName(Handle device, char *name, unsigned size) {
  SEEN("nvmlDeviceGetName", device, gpu);
  if (kind_of(device) == WHOLE) return unlocked(copied(name, size, gpu->name));
  char said[160];
  Gi *gi = gi_with(gpu, gi_of(device));
  Ci *ci = ci_with(gpu, gi_of(device), ci_of(device));
  Profile *profile = profile_with(gpu, gi->profile);
  if (ci->slices == profile->slices)
    snprintf(said, sizeof said, "%s MIG %s", gpu->name, profile->name);
  else
    snprintf(said, sizeof said, "%s MIG %uc.%s", gpu->name, ci->slices, profile->name);
  return unlocked(copied(name, size, said));
}

int nvmlDeviceGetUUID(Handle device, char *uuid, unsigned size) {
  SEEN("nvmlDeviceGetUUID", device, gpu);
  if (kind_of(device) == WHOLE) return unlocked(copied(uuid, size, gpu->uuid));
  char said[96];
  slice_uuid(gpu, gi_of(device), ci_of(device), said, sizeof said);
  return unlocked(copied(uuid, size, said));
}

int nvmlDeviceGetIndex(Handle device, unsigned *index) {
  SEEN("nvmlDeviceGetIndex", device, gpu);
  *index = index_of(device);
  return unlocked(OK);
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; } Pci;

int nvmlDeviceGetPciInfo_v3(Handle device, Pci *pci) {
  SEEN("nvmlDeviceGetPciInfo", device, gpu);
  memset(pci, 0, sizeof *pci);
  snprintf(pci->name, sizeof pci->name, "%s", gpu->bus);
  pci->id = gpu->pci;
  return unlocked(OK);
}

typedef struct { unsigned long long total, free, used; } Memory;

int nvmlDeviceGetMemoryInfo(Handle device, Memory *memory) {
  SEEN("nvmlDeviceGetMemoryInfo", device, gpu);
  int is_slice = kind_of(device) == SLICE;
  unsigned mib = gpu->mib, used = is_slice ? 0 : gpu->used;
  if (is_slice) mib = profile_with(gpu, gi_with(gpu, gi_of(device))->profile)->mib;
  for (unsigned i = 0; i < gpu->n_processes; i++)
    if (!is_slice || gpu->processes[i].gi == (int)gi_of(device)) used += gpu->processes[i].mib;
  memory->total = (unsigned long long)mib << 20;
  memory->used = (unsigned long long)(used < mib ? used : mib) << 20;
  memory->free = memory->total - memory->used;
  return unlocked(OK);
}

int nvmlDeviceGetUtilizationRates(Handle device, unsigned *rates) {
  SEEN("nvmlDeviceGetUtilizationRates", device, gpu);
  if (gpu->mode) return unlocked(UNSUPPORTED);
  rates[0] = gpu->busy, rates[1] = gpu->memory_busy;
  return unlocked(OK);
}

int nvmlDeviceGetPowerUsage(Handle device, unsigned *milliwatts) {
  SEEN("nvmlDeviceGetPowerUsage", device, gpu);
  if (kind_of(device) != WHOLE) return unlocked(UNSUPPORTED);
  *milliwatts = gpu->power;
  return unlocked(OK);
}

int nvmlDeviceGetTemperature(Handle device, unsigned sensor, unsigned *celsius) {
  SEEN("nvmlDeviceGetTemperature", device, gpu);
  if (sensor) return unlocked(INVALID);
  *celsius = 30 + gpu->busy / 3;
  return unlocked(OK);
}

int nvmlDeviceGetComputeMode(Handle device, unsigned *mode) {
  SEEN("nvmlDeviceGetComputeMode", device, gpu);
  *mode = 0;
  return unlocked(OK);
}

int nvmlDeviceGetCudaComputeCapability(Handle device, int *major, int *minor) {
  SEEN("nvmlDeviceGetCudaComputeCapability", device, gpu);
  *major = gpu->capable ? 8 : 7, *minor = gpu->capable ? 0 : 5;
  return unlocked(OK);
}

typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } Running;

int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned *count, Running *to) {
  SEEN("nvmlDeviceGetComputeRunningProcesses", device, gpu);
  unsigned there = 0, room = *count;
  for (unsigned i = 0; i < gpu->n_processes; i++) {
    const Process *one = &gpu->processes[i];
    if (kind_of(device) == SLICE &&
        (one->gi != (int)gi_of(device) || one->ci != (int)ci_of(device))) continue;
    if (to && there < room) {
      to[there].pid = one->pid;
      to[there].bytes = (unsigned long long)one->mib << 20;
      to[there].gi = (unsigned)one->gi, to[there].ci = (unsigned)one->ci;
    }
    there++;
  }
  *count = there;
  return unlocked(there && (!to || there > room) ? TOO_SMALL : OK);
}

/* -- MIG ----------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(Handle device, unsigned *mode, unsigned *pending) {
  CUT("nvmlDeviceGetMigMode", device, gpu);
  *mode = gpu->mode, *pending = gpu->pending;
  return unlocked(OK);
}

int nvmlDeviceSetMigMode(Handle device, unsigned mode, int *activation) {
  CUT("nvmlDeviceSetMigMode", device, gpu);
  if (mode > 1) return unlocked(INVALID);
  gpu->pending = mode, changed = 1;
  *activation = OK;
  if (gpu->mode == mode) return unlocked(OK);
  if (gpu->n_gis || held_by_process(gpu, -1, -1)) *activation = IN_USE;
  else if (gpu->resets) *activation = RESET_REQUIRED;
  else gpu->mode = mode;
  return unlocked(OK);
}

/* Not NVML's: nvidia-smi resets a GPU by other means. */
int standinReset(unsigned index) {
  BEGIN("standinReset");
  if (index >= world.n_gpus) return unlocked(INVALID);
  Gpu *gpu = &world.gpus[index];
  if (held_by_process(gpu, -1, -1)) return unlocked(IN_USE);
  gpu->mode = gpu->pending, gpu->n_gis = gpu->n_cis = 0, gpu->lost = 0, changed = 1;
  return unlocked(OK);
}

typedef struct { unsigned start, size; } Place;
typedef struct { unsigned id, p2p, slices, instances, sm, ce, dec, enc, jpeg, ofa;
  unsigned long long mib; } ProfileInfo;
typedef struct { unsigned version; unsigned id, p2p, slices, instances, sm, ce, dec, enc, jpeg,
  ofa; unsigned long long mib; char name[96]; } ProfileInfoV;

static int told(Gpu *gpu, Profile *one, ProfileInfoV *info) {
  (void)gpu;
  info->id = one->id, info->p2p = 0, info->slices = one->slices, info->instances = one->most;
  info->sm = one->sm, info->ce = one->ce, info->dec = one->dec, info->enc = one->enc;
  info->jpeg = one->jpeg, info->ofa = one->ofa, info->mib = one->mib;
  snprintf(info->name, sizeof info->name, "MIG %s", one->name);
  return OK;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(Handle device, unsigned slot, ProfileInfoV *info) {
  CUT("nvmlDeviceGetGpuInstanceProfileInfo", device, gpu);
  if (info->version != 0x02000098) return unlocked(VERSION);
  for (unsigned i = 0; i < gpu->n_profiles; i++)
    if (gpu->profiles[i].slot == slot) return unlocked(told(gpu, &gpu->profiles[i], info));
  return unlocked(UNSUPPORTED);
}
int nvmlDeviceGetGpuInstanceProfileInfoByIdV(Handle device, unsigned id, ProfileInfoV *info) {
  CUT("nvmlDeviceGetGpuInstanceProfileInfoById", device, gpu);
  Profile *one = profile_with(gpu, id);
  return unlocked(one ? told(gpu, one, info) : UNSUPPORTED);
}

static int is_free(const Gpu *gpu, unsigned start, unsigned size) {
  for (unsigned i = 0; i < gpu->n_gis; i++)
    if (start < gpu->gis[i].start + gpu->gis[i].size && gpu->gis[i].start < start + size) return 0;
  return 1;
}
static unsigned counted(const Gpu *gpu, unsigned profile) {
  unsigned count = 0;
  for (unsigned i = 0; i < gpu->n_gis; i++) count += gpu->gis[i].profile == profile;
  return count;
}
/* One instance of a GPU has the media extension. */
static int has_media(Gpu *gpu, const Profile *wanted) {
  if (!wanted->media) return 1;
  for (unsigned i = 0; i < gpu->n_gis; i++)
    if (profile_with(gpu, gpu->gis[i].profile)->media) return 0;
  return 1;
}
static unsigned room_for(Gpu *gpu, const Profile *one) {
  unsigned left = one->most - counted(gpu, one->id), fitting = 0;
  for (unsigned s = 0; s < one->places; s++)
    fitting += is_free(gpu, one->starts[s], one->size) && has_media(gpu, one);
  return fitting < left ? fitting : left;
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(Handle device, unsigned id, unsigned *count) {
  CUT("nvmlDeviceGetGpuInstanceRemainingCapacity", device, gpu);
  if (!gpu->mode) return unlocked(UNSUPPORTED);
  Profile *one = profile_with(gpu, id);
  if (!one) return unlocked(UNSUPPORTED);
  *count = room_for(gpu, one);
  return unlocked(OK);
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Handle device, unsigned id, Place *places,
                                                  unsigned *count) {
  CUT("nvmlDeviceGetGpuInstancePossiblePlacements", device, gpu);
  Profile *one = profile_with(gpu, id);
  if (!one) return unlocked(UNSUPPORTED);
  if (places && *count < one->places) return unlocked(TOO_SMALL);
  *count = one->places;
  for (unsigned s = 0; places && s < one->places; s++)
    places[s].start = one->starts[s], places[s].size = one->size;
  return unlocked(OK);
}

static int created(Gpu *gpu, unsigned index, Profile *one, unsigned start, Handle *to) {
  if (counted(gpu, one->id) >= one->most || !is_free(gpu, start, one->size) ||
      !has_media(gpu, one) || gpu->n_gis == INSTANCES) return NO_ROOM;
  Gi *gi = &gpu->gis[gpu->n_gis++];
  /* As drivers number them: the whole is 0, halves are 1 and 2, quarters 3 to 6, ... */
  gi->id = gpu->grid / one->size - 1 + start / one->size;
  gi->profile = one->id, gi->start = start, gi->size = one->size;
  *to = handle(GI, index, gi->id, 0);
  changed = 1;
  return OK;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(Handle device, unsigned id, const Place *place,
                                             Handle *gi) {
  CUT("nvmlDeviceCreateGpuInstanceWithPlacement", device, gpu);
  if (!gpu->mode) return unlocked(UNSUPPORTED);
  Profile *one = profile_with(gpu, id);
  if (!one) return unlocked(UNSUPPORTED);
  for (unsigned s = 0; s < one->places; s++)
    if (one->starts[s] == place->start)
      return unlocked(created(gpu, index_of(device), one, place->start, gi));
  return unlocked(INVALID);
}

int nvmlDeviceCreateGpuInstance(Handle device, unsigned id, Handle *gi) {
  CUT("nvmlDeviceCreateGpuInstance", device, gpu);
  if (!gpu->mode) return unlocked(UNSUPPORTED);
  Profile *one = profile_with(gpu, id);
  if (!one) return unlocked(UNSUPPORTED);
  for (unsigned s = 0; s < one->places; s++)
    if (is_free(gpu, one->starts[s], one->size))
      return unlocked(created(gpu, index_of(device), one, one->starts[s], gi));
  return unlocked(NO_ROOM);
}

int nvmlGpuInstanceDestroy(Handle one) {
  INSTANCE("nvmlGpuInstanceDestroy", one, gpu, gi);
  for (unsigned c = 0; c < gpu->n_cis; c++)
    if (gpu->cis[c].gi == gi->id) return unlocked(IN_USE);
  if (held_by_process(gpu, (int)gi->id, -1)) return unlocked(IN_USE);
  *gi = gpu->gis[--gpu->n_gis];
  changed = 1;
  return unlocked(OK);
}

int nvmlDeviceGetGpuInstances(Handle device, unsigned id, Handle *to, unsigned *count) {
  CUT("nvmlDeviceGetGpuInstances", device, gpu);
  if (!gpu->mode) return unlocked(UNSUPPORTED);
  *count = 0;
  for (unsigned i = 0; i < gpu->n_gis; i++)
    if (gpu->gis[i].profile == id)
      to[(*count)++] = handle(GI, index_of(device), gpu->gis[i].id, 0);
  return unlocked(OK);
}

int nvmlDeviceGetGpuInstanceById(Handle device, unsigned id, Handle *gi) {
  CUT("nvmlDeviceGetGpuInstanceById", device, gpu);
  if (!gi_with(gpu, id)) return unlocked(NOT_FOUND);
  *gi = handle(GI, index_of(device), id, 0);
  return unlocked(OK);
}

typedef struct { Handle device; unsigned id, profile; Place place; } GiInfo;

int nvmlGpuInstanceGetInfo(Handle one, GiInfo *info) {
  INSTANCE("nvmlGpuInstanceGetInfo", one, gpu, gi);
  info->device = handle(WHOLE, index_of(one), 0, 0);
  info->id = gi->id, info->profile = gi->profile;
  info->place.start = gi->start, info->place.size = gi->size;
  return unlocked(OK);
}

/* Compute instances: their profiles are numbered by how many slices they take. */
static const unsigned SLICES[] = {1, 2, 3, 4, 7, 8, 6};
enum { CI_PROFILES = sizeof SLICES / sizeof *SLICES };

typedef struct { unsigned version; unsigned id, slices, instances, sm, ce, dec, enc, jpeg, ofa;
  char name[96]; } CiProfileV;

static unsigned slices_left(Gpu *gpu, const Gi *gi) {
  unsigned left = profile_with(gpu, gi->profile)->slices;
  for (unsigned c = 0; c < gpu->n_cis; c++)
    if (gpu->cis[c].gi == gi->id) left -= gpu->cis[c].slices;
  return left;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(Handle one, unsigned profile, unsigned engine,
                                                  CiProfileV *info) {
  INSTANCE("nvmlGpuInstanceGetComputeInstanceProfileInfo", one, gpu, gi);
  Profile *whole = profile_with(gpu, gi->profile);
  if (profile >= CI_PROFILES || engine || SLICES[profile] > whole->slices)
    return unlocked(UNSUPPORTED);
  info->id = profile, info->slices = SLICES[profile];
  info->instances = whole->slices / SLICES[profile];
  info->sm = whole->sm * SLICES[profile] / whole->slices;
  info->ce = whole->ce, info->dec = whole->dec, info->enc = whole->enc;
  info->jpeg = whole->jpeg, info->ofa = whole->ofa;
  snprintf(info->name, sizeof info->name, "MIG %s", whole->name);
  return unlocked(OK);
}

int nvmlGpuInstanceCreateComputeInstance(Handle one, unsigned profile, Handle *to) {
  INSTANCE("nvmlGpuInstanceCreateComputeInstance", one, gpu, gi);
  if (profile >= CI_PROFILES) return unlocked(INVALID);
  if (SLICES[profile] > slices_left(gpu, gi) || gpu->n_cis == PARTS) return unlocked(NO_ROOM);
  unsigned id = 0;
  while (ci_with(gpu, gi->id, id)) id++;
  Ci *ci = &gpu->cis[gpu->n_cis++];
  ci->gi = gi->id, ci->id = id, ci->slices = SLICES[profile];
  *to = handle(CI, index_of(one), gi->id, id);
  changed = 1;
  return unlocked(OK);
}

int nvmlComputeInstanceDestroy(Handle one) {
  INSTANCE("nvmlComputeInstanceDestroy", one, gpu, gi);
  Ci *ci = ci_with(gpu, gi->id, ci_of(one));
  if (!ci) return unlocked(NOT_FOUND);
  if (held_by_process(gpu, (int)gi->id, (int)ci->id)) return unlocked(IN_USE);
  *ci = gpu->cis[--gpu->n_cis];
  changed = 1;
  return unlocked(OK);
}

int nvmlGpuInstanceGetComputeInstances(Handle one, unsigned profile, Handle *to,
                                       unsigned *count) {
  INSTANCE("nvmlGpuInstanceGetComputeInstances", one, gpu, gi);
  *count = 0;
  for (unsigned c = 0; c < gpu->n_cis && profile < CI_PROFILES; c++)
    if (gpu->cis[c].gi == gi->id && gpu->cis[c].slices == SLICES[profile])
      to[(*count)++] = handle(CI, index_of(one), gi->id, gpu->cis[c].id);
  return unlocked(OK);
}

int nvmlGpuInstanceGetComputeInstanceById(Handle one, unsigned id, Handle *to) {
  INSTANCE("nvmlGpuInstanceGetComputeInstanceById", one, gpu, gi);
  if (!ci_with(gpu, gi->id, id)) return unlocked(NOT_FOUND);
  *to = handle(CI, index_of(one), gi->id, id);
  return unlocked(OK);
}

int nvmlDeviceIsMigDeviceHandle(Handle device, unsigned *is_slice) {
  BEGIN("nvmlDeviceIsMigDeviceHandle");
  *is_slice = kind_of(device) == SLICE;
  return unlocked(OK);
}
int nvmlDeviceGetGpuInstanceId(Handle device, unsigned *id) {
  SEEN("nvmlDeviceGetGpuInstanceId", device, gpu);
  if (kind_of(device) != SLICE) return unlocked(UNSUPPORTED);
  *id = gi_of(device);
  return unlocked(OK);
}
int nvmlDeviceGetComputeInstanceId(Handle device, unsigned *id) {
  SEEN("nvmlDeviceGetComputeInstanceId", device, gpu);
  if (kind_of(device) != SLICE) return unlocked(UNSUPPORTED);
  *id = ci_of(device);
  return unlocked(OK);
}
int nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned *count) {
  SEEN("nvmlDeviceGetMaxMigDeviceCount", device, gpu);
  *count = 0;
  for (unsigned i = 0; i < gpu->n_profiles; i++)
    if (gpu->profiles[i].most > *count) *count = gpu->profiles[i].most;
  return unlocked(OK);
}
int nvmlDeviceGetMigDeviceHandleByIndex(Handle device, unsigned index, Handle *slice) {
  CUT("nvmlDeviceGetMigDeviceHandleByIndex", device, gpu);
  if (!gpu->mode) return unlocked(UNSUPPORTED);
  if (index >= gpu->n_cis) return unlocked(NOT_FOUND);
  *slice = handle(SLICE, index_of(device), gpu->cis[index].gi, gpu->cis[index].id);
  return unlocked(OK);
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Handle slice, Handle *device) {
  SEEN("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice, gpu);
  if (kind_of(slice) != SLICE) return unlocked(INVALID);
  *device = handle(WHOLE, index_of(slice), 0, 0);
  return unlocked(OK);
}

typedef struct { unsigned sm, ce, dec, enc, jpeg, ofa, gi_slices, ci_slices;
  unsigned long long mib; } Attributes;

int nvmlDeviceGetAttributes_v2(Handle device, Attributes *to) {
  SEEN("nvmlDeviceGetAttributes", device, gpu);
  if (kind_of(device) != SLICE) return unlocked(UNSUPPORTED);
  Profile *one = profile_with(gpu, gi_with(gpu, gi_of(device))->profile);
  Ci *ci = ci_with(gpu, gi_of(device), ci_of(device));
  to->sm = one->sm * ci->slices / one->slices, to->ce = one->ce, to->dec = one->dec;
  to->enc = one->enc, to->jpeg = one->jpeg, to->ofa = one->ofa;
  to->gi_slices = one->slices, to->ci_slices = ci->slices, to->mib = one->mib;
  return unlocked(OK);
}
