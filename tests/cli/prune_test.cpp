#include <algorithm>

#include "cli/program.h"
#include "io/weight_files.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::HasSubstr;

/// A language model that is trained for a few steps.
class Prune : public Program {
 protected:
  Prune() {
    write_tiny_model(at("model"));
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("line {} of a short text\n", i * 37 % 60);
    put("text.txt", text);
    put("text.yaml", R"(model: {config: model/config.json}
data: {path: text.txt, cache: cache, context: 32, val_share: 0.2}
train: {steps: 6, batch: 4, log_every: 1, checkpoint_every: 3}
optimizer: {name: adamw, lr: 0.01}
schedule: {name: constant}
threads: 1
)");
    works("hearth train text.yaml --out dense");
  }
  /// Returns the number of zeros of a tensor.
  int64_t num_zeros(const std::string& model, const char* name) const {
    const io::WeightFiles files(at(model));
    const io::TensorView& tensor = *files.find(name);
    const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
    return std::count(values, values + tensor.shape.num_elements(), 0.0F);
  }
};

constexpr const char* kUp = "model.layers.1.mlp.up_proj.weight";

TEST_F(Prune, WritesAFolderThatEverythingLoads) {
  EXPECT_THAT(works("hearth prune dense --sparsity 0.25 --out pruned"),
              HasSubstr("pruned: 25.0% of 3840 weights in 14 linear layers are zero"));
  EXPECT_EQ(num_zeros("pruned", kUp), 24 * 16 / 4);
  EXPECT_EQ(num_zeros("pruned", "lm_head.weight"), 0);
  EXPECT_THAT(works("hearth eval pruned data=text.txt data.val_share=0.2 data.context=32"),
              HasSubstr("perplexity"));
  works("hearth prune dense --pattern 2:4 --out half");
  EXPECT_EQ(num_zeros("half", kUp), 24 * 16 / 2);
}

TEST_F(Prune, ReportsLayersThatDoNotFitAPattern) {
  std::string config = get("model/config.json");
  config.replace(config.find("\"intermediate_size\": 24"), 23, "\"intermediate_size\": 20");
  put("model/config.json", config);
  works("hearth train text.yaml --out narrow");
  const Result result = shell("hearth prune narrow --pattern 4:8 --out half");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("note: 2 linear layers are not pruned"));
}

TEST_F(Prune, ByWandaMeasuresInputsOnText) {
  EXPECT_THAT(works("hearth prune dense --method wanda --rows 4 --out pruned"),
              HasSubstr("pruned: 50.0% of"));
  works("hearth prune dense --method wanda --rows 4 --out again threads=2");
  EXPECT_EQ(get("pruned/model.safetensors"), get("again/model.safetensors"));
  works("hearth prune dense --out by_magnitude");
  EXPECT_NE(get("pruned/model.safetensors"), get("by_magnitude/model.safetensors"));
  EXPECT_EQ(num_zeros("pruned", kUp), 24 * 16 / 2);
  refused("hearth prune model --method wanda --out other", {"--method wanda needs text", "--data"});
  refused("hearth prune dense --data text.txt --out other", {"--data is not for --method magnitude"});
  refused("hearth prune dense data.context=16 --out other", {"data.context=16 has no effect"});
}

TEST_F(Prune, RefusesKeysThatItCannotUse) {
  const std::string train = "hearth train text.yaml --out other ";
  refused(train + "prune.sparsity=0.3", {"prune.sparsity has no effect", "prune.method=magnitude"});
  refused(train + "prune.method=magnitude adapter.name=lora", {"prune.method=magnitude", "adapter"});
  refused(train + "prune.method=magnitude prune.from_step=6", {"prune.from_step", "train.steps"});
  refused(train + "prune.method=movement", {"prune.to_step"});
  refused(train + "prune.method=magnitude prune.pattern=2:4 prune.sparsity=0.7", {"prune.sparsity"});
  refused(train + "prune.method=rigl prune.to_step=5 prune.scope=global", {"prune.scope=layer"});
  refused(train + "prune.method=magnitude devices=2 parallel=sharded", {"parallel=data"});
  refused(train + "prune.method=magnitude prune.keep=[nothing]", {"prune.keep", "nothing"});
  refused(train + "prune.method=magnitude devices=2 exchange.local_steps=2 prune.from_step=1",
          {"prune.from_step=1", "exchange.local_steps=2"});
}

TEST_F(Prune, ATrainedRunHasZerosThatPruningAgainKeeps) {
  works(
      "hearth train text.yaml --out sparse prune.method=magnitude prune.sparsity=0.75 prune.from_step=3 "
      "prune.keep=[model.layers.0]");
  EXPECT_EQ(num_zeros("sparse", kUp), 24 * 16 * 3 / 4);
  EXPECT_EQ(num_zeros("sparse", "model.layers.0.mlp.up_proj.weight"), 0);
  EXPECT_THAT(get("sparse/trainer_log.jsonl"), HasSubstr("\"layer_sparsity\":{\"model.layers.1."));
  EXPECT_THAT(get("sparse/report.html"), HasSubstr("Sparsity"));
}

TEST_F(Prune, LeavesAnExistingFolderAlone) {
  refused("hearth prune dense --out model", {"model"});
  refused("hearth prune nothing --out pruned", {"nothing"});
}

TEST_F(Prune, RemovesHeadsAndColumns) {
  EXPECT_THAT(works("hearth prune dense --method channels --multiple 4 --flops 0.8 --out small"),
              HasSubstr("fine-tune it: hearth train RECIPE model.path=small --out RUN"));
  EXPECT_THAT(get("small/config.json"), HasSubstr("\"head_dim\": 8"));
  EXPECT_THAT(get("small/config.json"), testing::Not(HasSubstr("\"intermediate_size\": 24")));
  EXPECT_THAT(works("hearth eval small data=text.txt data.context=32"), HasSubstr("perplexity"));
  works("hearth train text.yaml model.config= model.path=small --out tuned");
  works("hearth export tuned --out folder && hearth eval folder data=text.txt data.context=32");
  works("hearth prune dense --method channels --multiple 4 --flops 0.8 --score taylor --out by-taylor");
  refused("hearth prune small --method channels --score taylor --out x",
          {"--score taylor needs the data of a run"});
  refused("hearth prune dense --method channels --flops 0.01 --out x", {"--flops 0.01 is too low for"});
  EXPECT_FALSE(fs::exists(at("x")));
}

/// A small convolutional network that is trained for a few steps.
class PruneChannels : public Program {
 protected:
  PruneChannels() {
    put("cnn.yaml", R"(model: {name: smallcnn, num_classes: 10}
data: {kind: shapes, image_size: 16, channels: 3, count: 64, val_count: 32}
train: {steps: 6, batch: 8, checkpoint_every: 3, log_every: 2}
threads: 1
)");
    works("hearth train cnn.yaml --out dense");
  }
  std::string prune(const std::string& more) const {
    return works("hearth prune dense --method channels --multiple 1 " + more);
  }
};

TEST_F(PruneChannels, TheSmallerModelIsUsedLikeAnyOther) {
  EXPECT_THAT(prune("--flops 0.5 --out small"), HasSubstr("fine-tune it: hearth train small/config.yaml"));
  EXPECT_LT(fs::file_size(at("small/model.safetensors")),
            fs::file_size(at("dense/model.safetensors")) * 3 / 4);
  EXPECT_THAT(works("hearth eval small"), HasSubstr("accuracy"));
  EXPECT_THAT(works("hearth plan small/config.yaml"), HasSubstr("smallcnn"));
  EXPECT_THAT(works("hearth export small --out small.onnx"), HasSubstr("ONNX of smallcnn"));
  works("hearth export small --out folder && hearth eval folder");
  works("hearth train small/config.yaml --out tuned");
  works("hearth prune tuned --method channels --multiple 1 --flops 0.5 --out smaller && hearth eval smaller");
  EXPECT_LT(fs::file_size(at("smaller/model.safetensors")), fs::file_size(at("small/model.safetensors")));
}

TEST_F(PruneChannels, EveryScoreRemovesChannels) {
  for (const char* score : {"norm", "l1", "l2", "taylor"}) {
    const std::string out = fmt::format("by-{}", score);
    EXPECT_THAT(prune(fmt::format("--score {0} --out by-{0}", score)), HasSubstr("% of the FLOPs of"));
    EXPECT_THAT(works("hearth eval " + out), HasSubstr("accuracy"));
  }
  EXPECT_FALSE(get("by-norm/model.safetensors") == get("by-taylor/model.safetensors"));
}

TEST_F(PruneChannels, AFinetuningResumesWithTheSameBits) {
  prune("--out small");
  works("hearth train small/config.yaml --out whole schedule.name=constant");
  works("hearth train small/config.yaml --out parts schedule.name=constant train.steps=3");
  works("hearth train --resume --out parts train.steps=6");
  works("hearth train small/config.yaml --out two schedule.name=constant train.shards=2 train.accumulate=2");
  works(
      "hearth train small/config.yaml --out four schedule.name=constant train.shards=2 train.accumulate=2 "
      "devices=2");
  EXPECT_TRUE(get("whole/model.safetensors") == get("parts/model.safetensors"));
  EXPECT_TRUE(get("two/model.safetensors") == get("four/model.safetensors"));
}

TEST_F(PruneChannels, MistakesAreExplained) {
  const std::string prune = "hearth prune dense --method channels --out x ";
  refused(prune + "--sparsity 0.5", {"--sparsity is not for --method channels"});
  refused("hearth prune dense --flops 0.5 --out x", {"--flops is not for --method magnitude"});
  refused(prune + "--flops 0.001", {"--flops 0.001 is too low for smallcnn"});
  const std::string train = "hearth train cnn.yaml --out x model.widths=";
  works("hearth prune dense --method channels --multiple 1 --out small");
  refused("hearth train cnn.yaml --out other init=small/model.safetensors",
          {"train the config.yaml in its folder"});
  refused(train + "[conv1]", {"model.widths like [layer1.0.conv1=48], got 'conv1'"});
  refused(train + "[conv9=4]", {"the model has no layer 'conv9'", "conv"});
  refused(train + "[conv1=400]", {"conv1=400, but the layer has 32 channels"});
  refused(train + "[fc=4]", {"the channels of 'fc' cannot be removed"});
  EXPECT_FALSE(fs::exists(at("x")));
}

}  // namespace
}  // namespace hearth
