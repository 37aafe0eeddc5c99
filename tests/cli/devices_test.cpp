// Several devices in one run: who shares what, and what is done about one that fails.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.h"
#include "data/images/image.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class Devices : public Program {};

TEST_F(Devices, ShareWhatOneTrainsAndOneGoesOn) {
  for (const char* device : {"device=cpu", "device=emulated"}) {
    const std::string train = "export HEARTH_EMULATED=1GiB,1GiB && hearth train ";
    works("rm -rf one two three");
    const std::string out = works(fmt::format("{} tiny.yaml --out two {} devices=2", train, device));
    EXPECT_THAT(out, AllOf(HasSubstr("global batch 8 = 4 x 2"), HasSubstr("done: 6 steps")));
    EXPECT_EQ(count_of(out, "done: "), 1U) << "one worker speaks";
    works(fmt::format("hearth train tiny.yaml --out one {} train.shards=2", device));
    EXPECT_TRUE(get("one/model.safetensors") == get("two/model.safetensors")) << device;
    for (const char* parallel : {"zero1", "sharded"}) {
      works(fmt::format("rm -rf three; {} tiny.yaml --out three {} devices=2 parallel={}", train, device,
                        parallel));
      EXPECT_TRUE(get("two/model.safetensors") == get("three/model.safetensors")) << device << parallel;
    }
    works("rm -rf alone stages");
    works(fmt::format("hearth train tiny.yaml --out alone {} train.batch=2 train.accumulate=4", device));
    const std::string stages =
        works(fmt::format("{} tiny.yaml --out stages {} devices=2 parallel=pipeline", train, device));
    EXPECT_THAT(stages, ContainsRegex("stages of [0-9]+ and [0-9]+ weights"));
    EXPECT_TRUE(get("alone/model.safetensors") == get("stages/model.safetensors")) << device;
    works("hearth train --resume --out two devices=1 train.steps=9");
    works("hearth train --resume --out one train.steps=9");
    EXPECT_TRUE(get("one/model.safetensors") == get("two/model.safetensors")) << device;
  }
}

TEST_F(Devices, WhatDoesNotFitIsATableWithWhatToTry) {
  for (const char* supervise : {"true", "false"}) {
    const Result result =
        shell(fmt::format("export HEARTH_EMULATED=64KiB && hearth train tiny.yaml --out run device=emulated "
                          "supervise={}",
                          supervise));
    EXPECT_EQ(result.code, 2);
    EXPECT_THAT(result.err,
                AllOf(ContainsRegex("^hearth: the plan needs [^\n]*, but emulated GPU 0 has only 64.0 KiB "
                                    "of usable memory:\n  parameters  *[0-9]+\n"),
                      HasSubstr("\n  activations "), ContainsRegex("\n(try|no setting)")));
  }
}

TEST_F(Devices, OneJudgesWhatSeveralHaveTrained) {
  put("a.png",
      data::encode_png({.height = 8, .width = 8, .channels = 3, .pixels = std::vector<uint8_t>(192)}));
  for (const char* ways : {"devices=3 train.batch=18", "devices=2 parallel=pipeline",
                           "devices=2 parallel=sharded", "devices=2 exchange.local_steps=2"}) {
    works(fmt::format("rm -rf run; hearth train tiny.yaml --out run {}", ways));
    EXPECT_THAT(works("hearth eval run"), HasSubstr(fmt::format("loss {:.4f}, ", last_eval_loss("run"))))
        << ways;
    EXPECT_THAT(works("hearth predict run a.png"), ContainsRegex("^a.png: [a-z]+ [0-9.]+%")) << ways;
  }
}

TEST_F(Devices, OneThatFailsIsNotLeftOutWhereEachHasStatesOfItsOwn) {
  const Result result = shell(
      "export HEARTH_EMULATED='1GiB,1GiB;broken=run/checkpoints/step-000000004' && "
      "hearth train tiny.yaml --out run device=emulated devices=2 exchange.compress=bf16");
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("device 1 disabled: its probe "),
                                HasSubstr("giving up: only 1 of 2 devices work\n  attempt 1, ")));
}

TEST_F(Devices, OneThatFailsIsLeftOutAndTheRestDoItsWork) {
  const std::string train =
      "hearth train tiny.yaml train.steps=40 train.keep_checkpoints=99 device=emulated devices=";
  works("export HEARTH_EMULATED=1GiB,1GiB,1GiB,1GiB && " + train + "4 --out whole");
  const Result result =
      shell("export HEARTH_EMULATED='1GiB,1GiB;broken=run/checkpoints/step-000000004,1GiB,1GiB' && " + train +
            "4 --out run");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("worker 1 ended with status 71 at step "),
                                HasSubstr("device 1 disabled: its probe ended with status"),
                                HasSubstr("attempt 2): devices 0, 2 of 4 do all the work")));
  EXPECT_TRUE(get("run/model.safetensors") == get("whole/model.safetensors"));
  EXPECT_THAT(get("run/trainer_log.jsonl"), HasSubstr("; devices 0, 2 of 4 do all the work\"}"));
  const Result from_memory = shell(
      "export HEARTH_EMULATED='1GiB,1GiB;broken=other/best.safetensors,1GiB,1GiB' && " + train +
      "4 --out other train.eval_every=9 train.checkpoint_every=1000 train.memory_checkpoint_every=1e-6");
  EXPECT_EQ(from_memory.code, 0) << from_memory.err;
  EXPECT_THAT(from_memory.err, HasSubstr("attempt 2): devices 0, 2 of 4 do all the work"));
  EXPECT_THAT(from_memory.out + from_memory.err, ContainsRegex("resumed step [0-9]+ from memory"));
  EXPECT_TRUE(get("other/model.safetensors") == get("whole/model.safetensors"));
}

TEST_F(Devices, StagesGoOnWithoutACardThatFails) {
  const std::string stages = "device=emulated devices=3 parallel=pipeline train.batch=2 train.accumulate=4";
  works("export HEARTH_EMULATED=1GiB,1GiB,1GiB && hearth train tiny.yaml --out three train.steps=20 " +
        stages);
  const Result two_stages = shell(
      "export HEARTH_EMULATED='1GiB,1GiB;broken=two/checkpoints/step-000000006,1GiB' && "
      "hearth train tiny.yaml --out two train.steps=20 " +
      stages);
  EXPECT_THAT(two_stages.err, HasSubstr("attempt 2): devices 0, 2 of 3 do all the work"));
  EXPECT_TRUE(get("two/model.safetensors") == get("three/model.safetensors"));
}

TEST_F(Devices, ARunEndsWhereNoGpuIsLeft) {
  const Result result =
      shell("export HEARTH_EMULATED='1GiB;broken=run' && hearth train tiny.yaml --out run device=emulated");
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the GPU failed: the GPU is broken"),
                                HasSubstr("giving up: only 0 of 1 devices work\n  attempt 1, ")));
}

TEST_F(Devices, TheSameFailureTwiceChangesTheOrderAndThreeTimesEndsTheRun) {
  const Result result = shell(
      "export HEARTH_EMULATED='1GiB;fault=80' && "
      "hearth train tiny.yaml --out run device=emulated train.checkpoint_every=99");
  EXPECT_EQ(result.code, 75);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("restarting (attempt 2)\n"),
                    HasSubstr("(attempt 3); the same step failed twice, so the samples get another order"),
                    HasSubstr("giving up: 3 failures at step "), HasSubstr("\n  attempt 1, "),
                    HasSubstr("\n  attempt 3, ")));
  EXPECT_THAT(result.out, HasSubstr("from step 0 on, samples are shuffled again (order number 1)"));
}

TEST_F(Devices, FourGpusOfWhichOneIsSlowOrFailsMakeTheBitsOfOne) {
  const std::string train = "hearth train tiny.yaml device=emulated train.checkpoint_every=1 --out ";
  works(train + "one train.shards=4");
  works("export HEARTH_EMULATED='1GiB,1GiB;link=10MB,1GiB,1GiB' && " + train + "slow devices=4");
  EXPECT_TRUE(get("one/model.safetensors") == get("slow/model.safetensors"));
  for (const char* trouble : {"fault", "hang"}) {
    const Result ill = shell(fmt::format(
        "export HEARTH_EMULATED='1GiB,1GiB,1GiB;{0}=120,1GiB' && {1}{0} devices=4", trouble, train));
    EXPECT_EQ(ill.code, 0) << ill.err;
    EXPECT_THAT(ill.err, HasSubstr("restarting (attempt 2)"));
    EXPECT_TRUE(get("one/model.safetensors") == get(fmt::format("{}/model.safetensors", trouble))) << trouble;
  }
  const Result refused =
      shell("export HEARTH_EMULATED='1GiB,1GiB,1GiB,1GiB;refuse=0' && " + train + "none devices=4");
  EXPECT_EQ(refused.code, 0) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("emulated GPU 3 has"), HasSubstr("device 3 disabled: ")));
  EXPECT_TRUE(get("one/model.safetensors") == get("none/model.safetensors"));
}

TEST_F(Devices, PlanShowsHowGpusCanShareARun) {
  const std::string command = "hearth plan tiny.yaml devices=2x1GiB --link 6.5";
  EXPECT_THAT(works(command), AllOf(HasSubstr("simulated, not measured"), HasSubstr("devices=1 "),
                                    HasSubstr("devices=2 parallel=data"),
                                    HasSubstr("devices=2 parallel=sharded"), HasSubstr("unchanged")));
  for (const Json& way : Json::parse(works(command + " --json"))) {
    EXPECT_TRUE(way.at("fits")) << way.at("settings");
    EXPECT_GT(way.at("samples_per_second").get<double>(), 0);
  }
  EXPECT_THAT(works("hearth plan tiny.yaml devices=1GiB,2GiB"),
              AllOf(HasSubstr("on GPUs of 1.00 GiB and 2.00 GiB"), HasSubstr("devices=2 parallel=pipeline"),
                    ContainsRegex("\n +stage 1: [0-9]+ weights ")));
  EXPECT_THAT(works("hearth plan tiny.yaml devices=2x1KiB"), HasSubstr("does not fit\n"));
}

}  // namespace
}  // namespace hearth
