// A job is one call of parallel_chunks. The caller and the workers take its chunks from an atomic
// counter. Workers wait for a job, and the caller waits for the last chunk. A waiting thread first
// spins for some microseconds, since kernels follow each other closely, and then sleeps on a
// condition variable. One job runs at a time: a caller that finds the pool busy with a job of
// another Python thread runs its chunks itself.
#include "thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "check.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

namespace needle {
namespace {

struct Job {
  std::int64_t n, grain, chunks;
  RangeFunction f;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;

  void run_chunks() {
    for (std::int64_t i = next++; i < chunks && !failed; i = next++) {
      try {
        f.call(f.object, i * grain, std::min(n, (i + 1) * grain));
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  }
};

thread_local bool inside_job = false;

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds kLongestSpin{50};
constexpr microseconds kShortestSpin{2};
constexpr microseconds kCoreWasTaken{10};  // a longer yield means that another thread ran

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` becomes true and returns true. Returns false after `patience`, or earlier if
// another thread wants this core.
template <class Ready>
bool spin(Ready&& ready, Clock::duration patience) {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      relax();
    }
    const Clock::time_point before = Clock::now();
    if (before >= end) return false;
    std::this_thread::yield();
    if (Clock::now() - before > kCoreWasTaken) return ready();
  }
}

struct Pool {
  std::mutex busy;   // held by the caller whose job runs
  std::mutex mutex;  // guards the following; spinning threads read the atomics without it
  std::condition_variable wake, done;
  Job* job = nullptr;
  std::atomic<int> vacancies{0};  // workers that may still join the job
  std::atomic<int> working{0};    // workers inside the job
  int workers = 0;             // started so far; they are detached and live as long as the process
  int asleep = 0;              // how many of them sleep on `wake`
  bool caller_asleep = false;  // it sleeps on `done`

  void work() {
    inside_job = true;
    Clock::duration patience = kLongestSpin;
    std::unique_lock lock(mutex, std::defer_lock);
    for (;;) {
      const Clock::time_point idle_since = Clock::now();
      spin([this] { return vacancies.load(std::memory_order_relaxed) > 0; }, patience);
      lock.lock();
      if (vacancies == 0) {
        sleep(lock);
        // Spinning pays only if the next job follows soon.
        patience = Clock::now() - idle_since < kLongestSpin
                       ? Clock::duration(kLongestSpin)
                       : std::max<Clock::duration>(patience / 2, kShortestSpin);
      }
      --vacancies;
      ++working;
      Job* mine = job;
      lock.unlock();
      mine->run_chunks();
      lock.lock();
      if (--working == 0 && caller_asleep) done.notify_one();
      lock.unlock();
    }
  }

  void sleep(std::unique_lock<std::mutex>& lock) {
    ++asleep;
    wake.wait(lock, [this] { return vacancies > 0; });
    --asleep;
  }

  void start_workers(int wanted) {
    try {
      for (; workers < wanted; ++workers) std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
      // The system allows no more threads, so the existing ones do the work.
    }
  }

  void run(Job& next_job, int helpers) {
    const int sleepers = publish(next_job, helpers);
    if (sleepers == 1) {
      wake.notify_one();
    } else if (sleepers > 1) {
      wake.notify_all();
    }
    inside_job = true;
    next_job.run_chunks();
    inside_job = false;
    wait_for_workers();
  }

  // Publishes the job; returns the number of sleeping workers that it needs.
  int publish(Job& next_job, int helpers) {
    std::lock_guard lock(mutex);
    start_workers(helpers);
    job = &next_job;
    vacancies = std::min(helpers, workers);
    return std::min(asleep, vacancies.load());
  }

  void wait_for_workers() {
    {
      std::lock_guard lock(mutex);
      vacancies = 0;  // too late for the other workers to join
    }
    spin([this] { return working.load(std::memory_order_relaxed) == 0; }, kLongestSpin);
    std::unique_lock lock(mutex);
    caller_asleep = true;
    done.wait(lock, [this] { return working == 0; });
    caller_asleep = false;
    job = nullptr;
  }
};

// Never destroyed, since workers outlive static destruction. A forked child gets a new pool,
// because the parent's threads do not exist there, and abandons the parent's copy.
std::atomic<Pool*> the_pool{nullptr};
std::mutex creation;
std::atomic<int> thread_count{0};  // 0: not chosen yet

#if defined(__unix__) || defined(__APPLE__)
[[maybe_unused]] const int registered =
    pthread_atfork([] { creation.lock(); }, [] { creation.unlock(); },
                   [] {
                     the_pool = nullptr;
                     inside_job = false;
                     creation.unlock();
                   });
#endif

Pool& pool() {
  if (Pool* existing = the_pool) return *existing;
  std::lock_guard lock(creation);
  if (the_pool == nullptr) the_pool = new Pool;
  return *the_pool;
}

// Returns the number of processors that the control group allows, rounded up; 0 if it sets no
// limit.
int cgroup_limit() {
  double quota = 0, period = 0;
  std::string first;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> first >> period && first != "max") {
    quota = std::stod(first);
  } else if (std::ifstream v1("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); v1 >> quota) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(quota / period + 0.999));
}

int usable_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
#endif
  if (int limit = cgroup_limit(); limit > 0) cores = std::min(cores, limit);
  return std::max(1, cores);
}

}  // namespace

int num_threads() {
  if (thread_count == 0) {
    int unset = 0;
    thread_count.compare_exchange_strong(unset, usable_cores());
  }
  return thread_count;
}

void set_num_threads(int n) {
  NEEDLE_CHECK(n >= 1, "set_num_threads: the count must be at least 1, got " + std::to_string(n));
  thread_count = n;
}

void parallel_chunks(std::int64_t n, std::int64_t grain, RangeFunction f) {
  if (n <= 0) return;
  if (n <= grain) return f.call(f.object, 0, n);
  Job job{n, grain, (n + grain - 1) / grain, f, {}, {}, {}};
  const int helpers = static_cast<int>(std::min<std::int64_t>(num_threads(), job.chunks)) - 1;
  Pool* mine = inside_job || helpers == 0 ? nullptr : &pool();
  if (mine != nullptr && mine->busy.try_lock()) {
    std::lock_guard lock(mine->busy, std::adopt_lock);
    mine->run(job, helpers);
  } else {
    job.run_chunks();
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace needle
