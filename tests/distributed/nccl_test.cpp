// NCCL's way, by a library of our own that emulated GPUs have (fake_nccl/): right, wrong, hanging,
// incomplete and absent.
#include "distributed/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "backend/gpu/emu/stream.h"
#include "backend/gpu/modules.h"
#include "base/error.h"
#include "distributed/shm/shm.h"

namespace hearth::distributed {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::StrEq;

constexpr int kRanks = 3;

gpu::DeviceInfo gpu_of(const ProcessGroup& host) {
  return gpu::emulator().list_devices().at(static_cast<size_t>(host.rank()));
}

class Nccl : public testing::Test {
 protected:
  Nccl() {
    setenv("HEARTH_NCCL", HEARTH_FAKE_NCCL, 1);
    emu::gpus().assign(kRanks, {});
  }
  ~Nccl() override {
    emu::gpus().assign(1, {});
    unsetenv("HEARTH_NCCL");
    unsetenv("HEARTH_FAKE_NCCL");
  }

  /// What opening comes to; the same on every rank.
  static std::string fault(double deadline_seconds = 30) {
    std::string found;
    run_ranks(kRanks, [&](ProcessGroup& host) {
      const OpenedNccl opened = open_nccl(host, gpu_of(host), deadline_seconds);
      if (opened.fault.empty() != (opened.group != nullptr)) internal_error("expected a group or a fault");
      found = opened.fault;
    });
    return found;
  }
};

/// An array on a GPU.
class Array {
 public:
  Array(gpu::Device& device, int64_t count)
      : memory_(device, 4 * count), stream_(device), host_(static_cast<size_t>(count)) {}
  float* put(float first) {
    std::iota(host_.begin(), host_.end(), first);
    stream_.copy_in(memory_.data(), host_.data(), std::ssize(host_) * 4);
    stream_.synchronize();
    return reinterpret_cast<float*>(memory_.data());
  }
  void expect(gpu::Stream& stream, float first, float step) {
    stream.copy_out(host_.data(), memory_.data(), std::ssize(host_) * 4);
    stream.synchronize();
    for (size_t i = 0; i < host_.size(); ++i) {
      if (host_[i] != first + step * static_cast<float>(i))
        internal_error("expected another number at {}", i);
    }
  }

 private:
  gpu::Memory memory_;
  gpu::Stream stream_;
  std::vector<float> host_;
};

TEST_F(Nccl, SumsAndMovesWhatIsOnGpus) {
  constexpr int64_t kCount = 50'000;
  run_ranks(kRanks, [](ProcessGroup& host) {
    const OpenedNccl opened = open_nccl(host, gpu_of(host));
    gpu::Device device(gpu_of(host));
    if (!opened.fault.empty()) internal_error("expected a group, got {}", opened.fault);
    EXPECT_EQ(opened.version, "2.27.3");
    ProcessGroup& group = *opened.group;
    EXPECT_TRUE(group.has(Capability::device_memory));
    EXPECT_TRUE(group.has(Capability::compute_cores)) << "as its host has";
    std::vector<float> on_host(10, 2);
    group.all_reduce(on_host, DType::f32);
    EXPECT_EQ(on_host, std::vector<float>(10, 6));
    gpu::Stream stream(device);
    Array one(device, kCount), many(device, kRanks * kCount);
    const auto rank = static_cast<float>(host.rank());
    float* data = one.put(rank);
    group.all_reduce(data, kCount, DType::f32, stream);
    one.expect(stream, 3, 3);
    data = one.put(rank);
    group.reduce(data, kCount, DType::f32, 1, stream);
    host.rank() == 1 ? one.expect(stream, 3, 3) : one.expect(stream, rank, 1);
    data = one.put(rank);
    group.broadcast(data, 4 * kCount, 2, stream);
    one.expect(stream, 2, 1);
    data = one.put(rank * kCount);
    group.all_gather(data, many.put(0), 4 * kCount, stream);
    many.expect(stream, 0, 1);
    group.reduce_scatter(many.put(0), data, kCount, DType::f32, stream);
    one.expect(stream, 3 * rank * kCount, 3);
    data = one.put(rank);
    if (host.rank() == 0) group.send(data, 4 * kCount, 2, stream);
    if (host.rank() == 2) group.receive(data, 4 * kCount, 0, stream);
    one.expect(stream, host.rank() == 2 ? 0 : rank, 1);
  });
}

TEST_F(Nccl, IsRefusedWhereItSumsWrong) {
  setenv("HEARTH_FAKE_NCCL", "wrong", 1);
  EXPECT_EQ(fault(), "rank 0: wrong sum of 1048589 test numbers, first at index 16384");
}

TEST_F(Nccl, IsRefusedWhereItRefuses) {
  setenv("HEARTH_FAKE_NCCL", "refuse", 1);
  EXPECT_EQ(fault(), "rank 0: all_reduce failed: the library was told to refuse");
}

TEST_F(Nccl, IsRefusedWhereOneRankRefuses) {
  setenv("HEARTH_FAKE_NCCL", "refuse one", 1);
  EXPECT_EQ(fault(2), "rank 0: all_reduce failed: the library was told to refuse");
}

TEST_F(Nccl, ARankThatFailsLeavesWithoutTheOthers) {
  run_ranks(kRanks, [](ProcessGroup& host) {
    const auto fail = [&] {
      const OpenedNccl opened = open_nccl(host, gpu_of(host));
      if (opened.group == nullptr) internal_error("expected a group, got {}", opened.fault);
      if (host.rank() != 1) host.barrier();
      user_error("a picture that nobody can read");
    };
    EXPECT_THROW(fail(), UserError);
    if (host.rank() == 1) host.barrier();
  });
}

TEST_F(Nccl, IsRefusedWhereItIsIncompleteOrAbsent) {
  setenv("HEARTH_NCCL", HEARTH_FAKE_NCCL_INCOMPLETE, 1);
  EXPECT_THAT(fault(),
              testing::EndsWith(
                  "libfake_nccl_incomplete.so has no function ncclReduce; NCCL 2.7 or later is needed"));
  setenv("HEARTH_NCCL", "/nowhere/libnccl.so.2", 1);
  EXPECT_THAT(fault(), StartsWith("rank 0: cannot open NCCL or RCCL: /nowhere/libnccl"));
  unsetenv("HEARTH_NCCL");
  EXPECT_THAT(fault(), HasSubstr("emulated GPUs have no such library"));
}

// In a process of its own: threads that hang stay, and a process that has some cannot be forked as another.
TEST_F(Nccl, IsRefusedWhereItHangs) {
  const auto say_fault = [](const char* trouble, double deadline_seconds) {
    setenv("HEARTH_FAKE_NCCL", trouble, 1);
    std::fputs(fault(deadline_seconds).c_str(), stderr);
    _exit(0);
  };
  const testing::ExitedWithCode ends_well(0);
  EXPECT_EXIT(say_fault("hang", 2), ends_well, StrEq("rank 0: a collective timed out after 2 s"));
  EXPECT_EXIT(say_fault("join", 0.2), ends_well,
              StrEq("rank 0: joining the group of GPUs timed out after 0.2 s"));
}

}  // namespace
}  // namespace hearth::distributed
