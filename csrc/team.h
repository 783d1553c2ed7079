// Threads that walk through stages together.
//
// In every stage the threads take pieces of work until none is left. A stage is over when all of its
// pieces are done, not when all threads have come: one that the system has put to sleep between two
// pieces is not waited for, and passes by the finished stages when it wakes up.
#pragma once
#include <sched.h>
#include <stdint.h>

struct alignas(64) Stage {
  int32_t taken;
  int32_t done;
};

struct Team {
  int size;
  Stage* stages;  // all zero at the start
};

// Where a thread stands.
struct Walk {
  int stage;
};

namespace {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Do this stage's `count` pieces, `chunk` at a time, together with the others: `work(i)` does one.
template <typename Work>
inline void share(Team& team, Walk& walk, int count, int chunk, Work work) {
  Stage& stage = team.stages[walk.stage++];
  for (;;) {
    const int first = __atomic_fetch_add(&stage.taken, chunk, __ATOMIC_RELAXED);
    if (first >= count) break;
    const int end = first + chunk < count ? first + chunk : count;
    for (int i = first; i < end; i++) work(i);
    __atomic_fetch_add(&stage.done, end - first, __ATOMIC_RELEASE);
  }
  // What is missing is somebody's last piece: microseconds, unless that core is taken.
  for (int spins = 0; __atomic_load_n(&stage.done, __ATOMIC_ACQUIRE) < count; spins++)
    if (spins < 4000)
      relax();
    else
      sched_yield();
}

}  // namespace
