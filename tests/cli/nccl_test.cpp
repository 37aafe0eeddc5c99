// Sums between emulated GPUs by a library of our own with NCCL's interface (distributed/fake_nccl), through
// backend/gpu/emu/library.h.
#include "program.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class Nccl : public Program {
 protected:
  /// Of a run on so many emulated GPUs.
  static std::string train(const std::string& run, int devices, const std::string& more = "",
                           const std::string& trouble = "") {
    std::string gpus = "1GiB";
    for (int i = 1; i < devices; ++i) gpus += ",1GiB";
    gpus += trouble;
    return fmt::format(
        "export HEARTH_EMULATED='{}' HEARTH_NCCL='{}' && hearth train tiny.yaml device=emulated devices={} "
        "train.accumulate=4 train.batch=2 --out {} {}",
        gpus, HEARTH_FAKE_NCCL, devices, run, more);
  }
  static constexpr const char* kNccl = "exchange.transport=nccl ";

  void expect_the_same(const std::string& run, const std::string& other) const {
    EXPECT_TRUE(get(run + "/model.safetensors") == get(other + "/model.safetensors")) << run;
  }
};

TEST_F(Nccl, SumsBetweenGpus) {
  works(train("host", 2));
  // A sum of two has one order.
  EXPECT_THAT(works(train("two", 2, kNccl)),
              HasSubstr("gradients are all-reduced between GPUs with NCCL or RCCL 2.27.3 (order"));
  expect_the_same("two", "host");
  works(train("parts", 2, std::string(kNccl) + "parallel=zero1"));
  expect_the_same("parts", "host");
  works(train("four", 4, kNccl));
  works(train("again", 4, kNccl));
  expect_the_same("again", "four");
}

TEST_F(Nccl, GoesTogetherWithWaysToSendLess) {
  for (const char* less : {"exchange.compress=powersgd", "exchange.local_steps=2"}) {
    works(train(fmt::format("host-{}", less), 2, less));
    works(train(fmt::format("nccl-{}", less), 2, fmt::format("{} {}", kNccl, less)));
    expect_the_same(fmt::format("nccl-{}", less), fmt::format("host-{}", less));
  }
}

TEST_F(Nccl, IsLeftOutWhereItCannotBeTrusted) {
  works(train("host", 2));
  EXPECT_THAT(
      works("export HEARTH_FAKE_NCCL=wrong && " + train("wrong", 2, kNccl)),
      HasSubstr(
          "gradients are all-reduced through host memory, not between GPUs: rank 0: wrong sum of 1048589"));
  expect_the_same("wrong", "host");
  EXPECT_THAT(works(fmt::format("export HEARTH_EMULATED=1GiB,1GiB && hearth train tiny.yaml device=emulated "
                                "devices=2 --out none {}",
                                kNccl)),
              HasSubstr("not between GPUs: rank 0: cannot open NCCL or RCCL"));
}

TEST_F(Nccl, ComesBackBehindAFailure) {
  works(train("whole", 2));
  const Result ill = shell(train("run", 2, std::string(kNccl) + "train.checkpoint_every=1", ";fault=120"));
  EXPECT_EQ(ill.code, 0) << ill.err;
  EXPECT_THAT(ill.err, HasSubstr("restarting (attempt 2)"));
  expect_the_same("run", "whole");
}

TEST_F(Nccl, IsNotForWhoeverWantsTheSameBits) {
  refused(train("none", 2, std::string(kNccl) + "train.shards=4"),
          {"train.shards=2 for exchange.transport=nccl, got 4", "exchange.transport=host"});
  refused(train("none", 2, std::string(kNccl) + "exchange.compress=bf16"), {"exchange.compress=none"});
  refused(train("none", 2, std::string(kNccl) + "offload.states=true"), {"offload.states=false"});
  refused("hearth train tiny.yaml devices=2 exchange.transport=nccl", {"device=gpu", "got cpu"});
}

TEST_F(Nccl, IsTimed) {
  const std::string bench = fmt::format(
      "export HEARTH_EMULATED=1GiB,1GiB HEARTH_NCCL='{}' && hearth bench comm --transport nccl --device "
      "emulated ",
      HEARTH_FAKE_NCCL);
  EXPECT_THAT(works(bench + "--min 64KiB --max 256KiB"),
              AllOf(HasSubstr("2 processes"), ContainsRegex("all_reduce +262144 +[0-9.]+ "),
                    ContainsRegex("send +65536 +[0-9.]+ ")));
  refused("export HEARTH_FAKE_NCCL=wrong && " + bench, {"wrong sum of 1048589 test numbers"});
}

}  // namespace
}  // namespace hearth
