// The thread pool: every index runs once, chunks depend only on n and grain; nesting, exceptions,
// concurrent callers, pauses, fork. It also runs under the thread sanitizer.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "core/check.h"
#include "core/thread_pool.h"
#include "expect.h"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#endif

using namespace needle;

namespace {

// Returns which chunk wrote each index.
std::vector<std::int64_t> chunk_starts(std::int64_t n, std::int64_t grain) {
  std::vector<std::int64_t> starts(n, -1);
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) starts[i] = begin;
  });
  return starts;
}

}  // namespace

TEST(chunks_do_not_depend_on_the_number_of_threads) {
  for (std::int64_t n : {0, 1, 7, 100, 1001}) {
    set_num_threads(1);
    const auto alone = chunk_starts(n, 10);
    for (std::int64_t i = 0; i < n; ++i) EXPECT(n <= 10 ? alone[i] == 0 : alone[i] == i / 10 * 10);
    for (int threads : {2, 3, 8}) {
      set_num_threads(threads);
      for (int repeat = 0; repeat < 50; ++repeat) EXPECT(chunk_starts(n, 10) == alone);
    }
  }
}

TEST(nested_calls_run_inline) {
  set_num_threads(4);
  std::atomic<std::int64_t> total{0};
  parallel_for(16, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto mine = std::this_thread::get_id();
      parallel_for(100, 7, [&](std::int64_t b, std::int64_t e) {
        if (std::this_thread::get_id() == mine) total += e - b;
      });
    }
  });
  EXPECT(total == 1600);
}

TEST(the_first_exception_arrives_and_the_pool_goes_on) {
  set_num_threads(4);
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_THROWS(parallel_for(100, 1, [](std::int64_t begin, std::int64_t) {
      if (begin == 42) raise_error("42");
    }));
    EXPECT(chunk_starts(100, 3).back() == 99);
  }
}

TEST(several_callers_at_once) {
  set_num_threads(3);
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT(total == 4 * 100 * 64);
}

// Jobs find workers spinning, falling asleep and asleep; the last chunk makes the caller wait as
// long as the pause before the job.
TEST(jobs_arrive_after_pauses_of_any_length) {
  using std::chrono::microseconds;
  for (int threads : {2, 5}) {
    set_num_threads(threads);
    for (int i = 0; i < 600; ++i) {
      const microseconds pause(i % 3 == 0 ? 0 : i % 120);
      std::this_thread::sleep_for(pause);
      std::atomic<std::int64_t> total{0};
      parallel_for(8, 1, [&](std::int64_t begin, std::int64_t) {
        if (begin == 7) std::this_thread::sleep_for(pause);
        total += begin;
      });
      EXPECT(total == 28);
    }
  }
}

// Simulates training beside a busy process: with too few cores, no thread may spin forever.
TEST(more_threads_than_cores) {
  set_num_threads(static_cast<int>(3 * std::thread::hardware_concurrency() + 1));
  for (int repeat = 0; repeat < 300; ++repeat) EXPECT(chunk_starts(64, 1).back() == 63);
  set_num_threads(2);
  for (int repeat = 0; repeat < 300; ++repeat) EXPECT(chunk_starts(64, 1).back() == 63);
}

TEST(a_count_below_one_is_an_error) { EXPECT_THROWS(set_num_threads(0)); }

#if (defined(__unix__) || defined(__APPLE__)) && !defined(__SANITIZE_THREAD__)
TEST(a_forked_child_starts_its_own_threads) {
  set_num_threads(4);
  chunk_starts(100, 1);  // starts the parent's workers
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto starts = chunk_starts(1000, 1);
    _exit(std::accumulate(starts.begin(), starts.end(), 0LL) == 999 * 500 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif
