#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/asan.h"
#include "base/dtype.h"
#include "base/e4m3.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/shape.h"
#include "base/text.h"
#include "base/threads.h"
#include "main_stack.h"

namespace hearth {
namespace {

TEST(Philox, MatchesThePublishedVectors) {
  // Known answers of Random123 1.14, kat_vectors, philox4x32 10.
  EXPECT_EQ(philox4x32(0, {0, 0, 0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ULL, {~0U, ~0U, ~0U, ~0U}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(0x299f31d0a4093822ULL, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, PermutationVisitsEveryIndexOnce) {
  for (const uint64_t count : {1, 2, 3, 10, 64, 1000}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < count; ++i) seen.insert(permuted_index(7, count, i));
    EXPECT_EQ(seen.size(), count);
    EXPECT_LT(*seen.rbegin(), count);
  }
  EXPECT_NE(permuted_index(7, 1000, 0), permuted_index(8, 1000, 0));
}

TEST(DType, HalfPrecisionRoundTripsEveryCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const f16 half{static_cast<uint16_t>(code)};
    const bf16 brain{static_cast<uint16_t>(code)};
    if (!std::isnan(to_f32(half))) {
      EXPECT_EQ(to_f16(to_f32(half)).bits, half.bits);
    }
    if (!std::isnan(to_f32(brain))) {
      EXPECT_EQ(to_bf16(to_f32(brain)).bits, brain.bits);
    }
  }
  EXPECT_TRUE(std::isinf(to_f32(to_f16(70000.0F))));
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_bf16(1.00390625F).bits, 0x3f80);  // a tie goes to the even code
}

TEST(DType, EightBitFloatsRoundTripAndSaturate) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    if (std::isfinite(f8_e4m3_to_f32(bits))) {
      EXPECT_EQ(f32_to_f8_e4m3(f8_e4m3_to_f32(bits)), bits);
    }
    if (std::isfinite(f8_e5m2_to_f32(bits))) {
      EXPECT_EQ(f32_to_f8_e5m2(f8_e5m2_to_f32(bits)), bits);
    }
  }
  EXPECT_EQ(f8_e4m3_to_f32(f32_to_f8_e4m3(1e6F)), 448.0F);
  EXPECT_EQ(f8_e5m2_to_f32(f32_to_f8_e5m2(-1e6F)), -57344.0F);
}

/// Returns the E4M3 code nearest to a magnitude of at most kMaxE4m3, by comparing all codes.
uint8_t nearest_e4m3(float magnitude) {
  uint8_t best = 0;
  for (int code = 1; code < 0x7f; ++code) {
    const float error = std::fabs(e4m3_value(static_cast<uint32_t>(code)) - magnitude);
    const float best_error = std::fabs(e4m3_value(best) - magnitude);
    if (error < best_error || (error == best_error && code % 2 == 0)) best = static_cast<uint8_t>(code);
  }
  return best;
}

TEST(E4m3, RoundsToTheNearestOfAllCodes) {
  EXPECT_EQ(e4m3_value(0x7e), kMaxE4m3);
  EXPECT_EQ(e4m3_value(1), 0x1p-9F);
  EXPECT_EQ(e4m3_value(0x89), -0x1.2p-6F);
  for (uint32_t code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(e4m3_code(e4m3_value(code)), code);
    EXPECT_EQ(e4m3_code(-e4m3_value(code)), code | 0x80);
    const float middle = (e4m3_value(code) + e4m3_value(code + 1)) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e3F)}) {
      EXPECT_EQ(e4m3_code(x), nearest_e4m3(std::min(x, kMaxE4m3))) << x;
    }
  }
  for (const float x : {449.0F, 1e6F, std::numeric_limits<float>::infinity()}) EXPECT_EQ(e4m3_code(-x), 0xfe);
  EXPECT_EQ(e4m3_code(std::numeric_limits<float>::quiet_NaN()), 0x7e);
  EXPECT_EQ(e4m3_code(1e-30F), 0);
}

TEST(E4m3, ScalesRowsIntoItsRange) {
  for (const float absmax : {448.0F, 449.0F, 1.0F, 1.75F, 1.7500001F, 1e6F, 3e38F, 1e-20F, 0x1p-118F}) {
    const uint8_t exponent = e4m3_exponent(absmax);
    const float scale = e4m3_scale(exponent);
    EXPECT_LE(absmax / scale, kMaxE4m3) << absmax;
    EXPECT_GT(absmax / scale, kMaxE4m3 / 2) << absmax;
    EXPECT_EQ(e4m3_inverse_scale(exponent), 1 / scale);
  }
  EXPECT_EQ(e4m3_scale(e4m3_exponent(0)), 1.0F);
  EXPECT_EQ(e4m3_scale(e4m3_exponent(0x1p-149F)), 0x1p-126F);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(e4m3_scale(e4m3_exponent(bad))));
  }
}

TEST(Shape, RefusesAbsurdShapes) {
  EXPECT_EQ(Shape({2, 3, 4}).num_elements(), 24);
  EXPECT_EQ(Shape({2, 3, 4})[-1], 4);
  EXPECT_EQ(to_string(Shape({2, 3})), "[2, 3]");
  EXPECT_THROW(Shape({int64_t{1} << 40, int64_t{1} << 40}), UserError);
  EXPECT_THROW(Shape({-1}), UserError);
}

TEST(ThreadPool, CoversTheRangeOnceForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::vector<int> hits(97, 0);
      pool.parallel_for(97, 1, [&](Range range) {
        for (int64_t i = range.begin; i < range.end; ++i) ++hits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), 97);
      EXPECT_EQ(*std::max_element(hits.begin(), hits.end()), 1);
    }
  }
}

TEST(ThreadPool, EveryTaskIsRunOnceByOneOfTheThreadsAskedFor) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 2, 97}) {
      std::vector<int> hits(static_cast<size_t>(count), 0);
      pool.run_tasks(count, 2, [&](int64_t task, int thread) {
        EXPECT_LT(thread, 2);
        ++hits[static_cast<size_t>(task)];
      });
      EXPECT_EQ(hits, std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

TEST(ThreadPool, AThreadThatIsHeldUpLeavesTheTasksToTheOthers) {
  constexpr int64_t kTasks = 40;
  ThreadPool pool(2);
  std::atomic<int64_t> others{0};
  bool waited_in_vain = false;
  pool.run_tasks(kTasks, 2, [&](int64_t task, int) {
    if (task > 0) {
      ++others;
      return;
    }
    int patience = 10'000'000;
    while (others < kTasks - 1 && --patience > 0) std::this_thread::yield();
    waited_in_vain = patience == 0;
  });
  EXPECT_FALSE(waited_in_vain);
}

TEST(Text, LinesAndBlanks) {
  std::string_view rest = "a\n\nb";
  EXPECT_EQ(take_line(rest), "a");
  EXPECT_EQ(take_line(rest), "");
  EXPECT_EQ(take_line(rest), "b");
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(without_blank_end(" a \n"), " a");
}

TEST(Text, WhatWouldSteerATerminalIsSpelledOut) {
  EXPECT_EQ(printable("a\x1b[31mb\r\x07\x7f\tc\n"), "a\\x1b[31mb\\x0d\\x07\\x7f\tc\n");
  EXPECT_EQ(printable("a\nb", false), "a\\x0ab");
  EXPECT_EQ(printable("\xc2\x9b"
                      "0m \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82"),
            "\\xc2\\x9b0m \xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82");
  EXPECT_EQ(printable("\xff\xc3(\xed\xa0\x80\xc0\x80\xe2\x82"),
            "\\xff\\xc3(\\xed\\xa0\\x80\\xc0\\x80\\xe2\\x82");
}

TEST(Text, LongLinesKeepTheirStartAndEnd) {
  EXPECT_EQ(shortened("short", 20), "short");
  EXPECT_EQ(shortened("0123456789abcdefghijklmnop", 20), "0123456 [...] klmnop");
  EXPECT_EQ(shortened(std::string(30, '\n'), 20).size(), 20);
  EXPECT_EQ(
      shortened("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9",
                10),
      " [...] \xc3\xa9\xc3\xa9\xc3\xa9");
}

TEST(Threads, TheStackIsTakenAtTheStart) {
  EXPECT_EXIT(
      {
        const int64_t before = main_stack_bytes("self");
        touch_stack_pages();
        std::_Exit(before < 1 << 20 && main_stack_bytes("self") >= 1 << 20 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Threads, AStackThatIsTooMuchIsSaid) {
#if defined(HEARTH_ASAN) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIPPED: a sanitizer takes more memory than this limit leaves";
#endif
  const rlimit full{size_t{1} << 20, size_t{1} << 20};
  EXPECT_EXIT(
      {
        touch_stack_pages();  // what is thrown needs some
        setrlimit(RLIMIT_AS, &full);
        try {
          touch_stack_pages();
        } catch (const std::bad_alloc&) {
          std::fputs("no room\n", stderr);
          std::_Exit(0);
        }
        std::_Exit(1);
      },
      testing::ExitedWithCode(0), "no room");
}

TEST(Threads, TooManyForTheSystemAreRefused) {
#if defined(HEARTH_ASAN) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "SKIPPED: a sanitizer takes more memory than this limit leaves";
#endif
  const rlimit tight{size_t{1} << 30, size_t{1} << 30};
  EXPECT_EXIT(
      {
        setrlimit(RLIMIT_AS, &tight);
        try {
          const ThreadPool pool(100'000);
        } catch (const UserError& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::_Exit(2);
        }
        std::_Exit(0);
      },
      testing::ExitedWithCode(2), "only [0-9]+ of 100000 threads could be started: .*; set threads=[0-9]+");
}

TEST(Threads, WhatABodyThrowsReachesTheCallerWhenAllHaveEnded) {
  ThreadPool pool(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> num_ended = 0;
    const auto body = [&](int thread) {
      if (thread == thrower) throw std::bad_alloc();
      ++num_ended;
    };
    EXPECT_THROW(pool.run(body), std::bad_alloc);
    EXPECT_EQ(num_ended, 3);
  }
  EXPECT_NO_THROW(pool.run([](int) {}));
}

TEST(Text, MarksCaseAndListsOfNames) {
  EXPECT_EQ(without_bom("\xEF\xBB\xBF"
                        "a"),
            "a");
  EXPECT_EQ(without_bom("a\xEF\xBB\xBF"), "a\xEF\xBB\xBF");
  EXPECT_EQ(lowered("Void \xC3\x84.PNG"), "void \xC3\x84.png");
  const std::vector<std::string> names = {"a", "b", "c"};
  EXPECT_EQ(listed(names, 3), "a, b, c");
  EXPECT_EQ(listed(names, 2), "a, b, ...");
  EXPECT_EQ(listed({}, 2), "");
}

TEST(Text, BytesAndNames) {
  EXPECT_EQ(parse_bytes("20GiB"), int64_t{20} << 30);
  EXPECT_EQ(parse_bytes("1.5 MB"), 1500000);
  EXPECT_EQ(parse_bytes("-3"), std::nullopt);
  EXPECT_EQ(parse_bytes("3 bananas"), std::nullopt);
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  const std::vector<std::string> names = {"batch", "epochs", "seed"};
  EXPECT_EQ(nearest_name("bacth", names), "batch");
  EXPECT_EQ(nearest_name("learning_rate", names), std::nullopt);
  EXPECT_EQ(nearest_name("q5", std::vector<std::string>{"", "fp32"}), std::nullopt);
}

TEST(File, WritesAtomicallyAndMaps) {
  const fs::path path = fs::temp_directory_path() / "hearth_base_test.txt";
  write_file_atomically(path, "hello");
  EXPECT_EQ(read_file(path), "hello");
  const MappedFile mapped(path);
  EXPECT_EQ(mapped.bytes().size(), 5U);
  EXPECT_EQ(hash64(mapped.bytes()), hash64("hello"));
  fs::remove(path);
  EXPECT_THROW(read_file(path), UserError);
  EXPECT_THROW(MappedFile{fs::temp_directory_path()}, UserError);
}

TEST(File, APipeIsWrittenToAndNotReplaced) {
  const fs::path pipe = fs::temp_directory_path() / fmt::format("hearth_pipe_{}", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(pipe, "picture");
  char text[16] = {};
  EXPECT_EQ(read(reader, text, sizeof(text)), 7);
  EXPECT_STREQ(text, "picture");
  EXPECT_TRUE(fs::is_fifo(pipe));
  const fs::path file = pipe.string() + ".file";
  write_file_atomically(file, "x");
  EXPECT_THROW(rename_durably(file, pipe), UserError);
  EXPECT_TRUE(fs::is_fifo(pipe));
  close(reader);
  fs::remove(file);
  fs::remove(pipe);
}

TEST(File, APipeIsNoFileToRead) {
  const fs::path pipe = fs::temp_directory_path() / fmt::format("hearth_no_file_{}", getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(read_file(pipe), UserError);
  EXPECT_THROW(MappedFile{pipe}, UserError);
  EXPECT_THROW(read_file("/dev/zero"), UserError);
  fs::remove(pipe);
}

TEST(File, OneThatIsCutShortWhileItIsReadIsNamed) {
  const fs::path path = fs::temp_directory_path() / fmt::format("hearth_cut_\x1b{}", getpid());
  write_file_atomically(path, std::string(1 << 16, 'x'));
  const auto sum_of_cut = [&] {
    const MappedFile other("/proc/self/exe");
    MappedFile moved;
    moved = MappedFile(path);
    fs::resize_file(path, 0);
    int sum = 0;
    for (const std::byte byte : moved.bytes()) sum += static_cast<int>(byte);
    std::_Exit(sum == 0 ? 0 : 1);
  };
  EXPECT_EXIT(
      {
        install_sigbus_handler();
        sum_of_cut();
      },
      testing::ExitedWithCode(2), "^hearth: .*hearth_cut_\\?[0-9]+: the file was truncated .* --resume\n$");
  fs::remove(path);
}

TEST(File, LostPagesOfOtherMemoryAreExplainedAndFatal) {
  const auto read_lost = [] {
    FILE* const file = std::tmpfile();
    const void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
    std::_Exit(*static_cast<const volatile char*>(page));
  };
  EXPECT_EXIT(
      {
        install_sigbus_handler();
        read_lost();
      },
      testing::KilledBySignal(SIGBUS), "^hearth: a page of memory cannot be read.*\n$");
}

}  // namespace
}  // namespace hearth
