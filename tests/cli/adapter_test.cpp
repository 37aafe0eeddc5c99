#include "base/dtype.h"
#include "cli/program.h"
#include "io/safetensors.h"

namespace hearth {
namespace {

/// base/: a tiny model of random weights in bf16; run/: an adapter on it, trained for a few steps.
class Adapter : public Program {
 protected:
  Adapter() {
    put("config.json", R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
      "num_hidden_layers": 1, "num_attention_heads": 2, "initializer_range": 0.3})");
    put("recipe.yaml",
        "threads: 1\ndata: {path: text.safetensors, context: 5, val_share: 0.5}\n"
        "train: {steps: 3, batch: 2}\noptimizer: {name: adamw, lr: 0.05}\n");
    std::vector<int32_t> tokens(60);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 11);
    io::write_safetensors(
        at("text.safetensors"),
        {{.name = "tokens", .dtype = DType::i32, .shape = {60}, .bytes = std::as_bytes(std::span(tokens))}});
    works("hearth train recipe.yaml --out base model.config=config.json");
    store_in_half();
    works(kTrain +
          " --out run adapter.targets=[q_proj,down_proj] adapter.rank=2 adapter.modules_to_save=[norm]");
  }

  /// Writes the base's weights as bf16.
  void store_in_half() const {
    std::vector<std::vector<bf16>> values;
    std::vector<io::TensorView> views;
    {
      const io::SafetensorsFile file(at("base/model.safetensors"));
      for (io::TensorView view : file.tensors()) {
        values.emplace_back();
        for (int64_t i = 0; i < view.shape.num_elements(); ++i)
          values.back().push_back(
              to_bf16(static_cast<float>(load_element(view.dtype, view.bytes.data(), i))));
        view.dtype = DType::bf16;
        views.push_back(view);
      }
    }
    for (size_t i = 0; i < views.size(); ++i) views[i].bytes = std::as_bytes(std::span(values[i]));
    io::write_safetensors(at("base/model.safetensors"), views);
  }

  static double element(const io::SafetensorsFile& file, const std::string& name, int64_t index) {
    const io::TensorView* view = file.find(name);
    EXPECT_NE(view, nullptr) << name;
    return view == nullptr ? 0 : load_element(view->dtype, view->bytes.data(), index);
  }

  const std::string kTrain = "hearth train recipe.yaml model=./base adapter=lora";
};

TEST_F(Adapter, ExportMergesInTheTypeThatIsAskedFor) {
  works("hearth export run --type f32 --out wide");
  works("hearth merge --adapter run --out merged");
  const io::SafetensorsFile wide(at("wide/model.safetensors")), merged(at("merged/model.safetensors"));
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  int finer = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double exact = element(wide, q, i);
    EXPECT_EQ(to_f32(to_bf16(static_cast<float>(exact))), element(merged, q, i));
    finer += exact != element(merged, q, i);
  }
  EXPECT_GT(finer, 32);
  EXPECT_THAT(get("wide/config.json"), testing::HasSubstr("\"torch_dtype\": \"float32\""));
  refused("hearth export base --base run --out more", {"--base is for adapters"});
}

TEST_F(Adapter, MergeAddsTheProductInTheBasesDtype) {
  EXPECT_THAT(works("hearth merge --adapter run --out merged/"), testing::HasSubstr("3 weights changed"));
  const io::SafetensorsFile base(at("base/model.safetensors")), adapter(at("run/adapter_model.safetensors"));
  const io::SafetensorsFile merged(at("merged/model.safetensors"));
  const std::string q = "model.layers.0.self_attn.q_proj", prefix = "base_model.model.";
  int changed = 0;
  for (int64_t i = 0; i < 64; ++i) {
    double want = element(base, q + ".weight", i);
    for (int64_t k = 0; k < 2; ++k) {
      want += 16 * element(adapter, prefix + q + ".lora_B.weight", i / 8 * 2 + k) *
              element(adapter, prefix + q + ".lora_A.weight", k * 8 + i % 8);
    }
    const double found = element(merged, q + ".weight", i);
    EXPECT_NEAR(found, want, std::abs(want) / 250);
    changed += found != element(base, q + ".weight", i);
  }
  EXPECT_GT(changed, 32);
  EXPECT_EQ(element(merged, "model.norm.weight", 3),
            to_f32(to_bf16(static_cast<float>(element(adapter, prefix + "model.norm.weight", 3)))));
  ASSERT_EQ(merged.tensors().size(), base.tensors().size());
  for (size_t i = 0; i < base.tensors().size(); ++i) {
    EXPECT_EQ(merged.tensors()[i].name, base.tensors()[i].name);
    EXPECT_EQ(merged.tensors()[i].dtype, DType::bf16);
  }
  EXPECT_EQ(get("merged/config.json"), get("base/config.json"));
}

TEST_F(Adapter, ARunIsJudgedAndMergedByItsFolder) {
  EXPECT_THAT(works("hearth eval run"), testing::HasSubstr("run/best.safetensors: loss"));
  works("mv base elsewhere; hearth merge --adapter run/best.safetensors --model elsewhere --out merged");
  EXPECT_TRUE(has("merged/model.safetensors"));
  EXPECT_FALSE(has("run/model.safetensors"));
}

TEST_F(Adapter, EveryCommandTakesTheBestWeightsOfARunAndSaysSo) {
  works("hearth train recipe.yaml --out full model=./base train.steps=40 optimizer.lr=3 train.eval_every=1");
  for (const std::string run : {"run", "full"}) {
    const std::string best = run + "/best.safetensors";
    EXPECT_THAT(works("hearth eval " + run), testing::HasSubstr(best));
    EXPECT_THAT(works("hearth generate " + run + " --tokens --prompt 3 -n 2 2>&1"), testing::HasSubstr(best));
    EXPECT_THAT(works("hearth export " + run + " --out " + run + ".out"), testing::HasSubstr(best));
  }
  EXPECT_THAT(works("hearth merge --adapter run --out merged"), testing::HasSubstr("run/best.safetensors"));
  EXPECT_EQ(get("full.out/model.safetensors"), get("full/best.safetensors"));
  EXPECT_NE(get("full.out/model.safetensors"), get("full/model.safetensors"));
  works("rm run/best.safetensors full/best.safetensors");
  EXPECT_THAT(works("hearth eval run"), testing::HasSubstr("run/adapter_model.safetensors"));
  EXPECT_THAT(works("hearth export full --out last"), testing::HasSubstr("full/model.safetensors"));
  EXPECT_EQ(get("last/model.safetensors"), get("full/model.safetensors"));
}

TEST_F(Adapter, ARunIsSavedInTheDtypeOfItsBase) {
  const std::string train =
      "hearth train recipe.yaml model=./base schedule=constant train.checkpoint_every=2";
  works(train + " train.steps=4 --out whole");
  works(train + " train.steps=2 --out parts");
  works("mv base elsewhere; hearth train --resume --out parts train.steps=4; mv elsewhere base");
  for (const char* name : {"model.safetensors", "best.safetensors"}) {
    EXPECT_EQ(get("parts/" + std::string(name)), get("whole/" + std::string(name)));
    const io::SafetensorsFile file(at("whole/" + std::string(name)));
    for (const io::TensorView& tensor : file.tensors()) EXPECT_EQ(tensor.dtype, DType::bf16) << tensor.name;
  }
  EXPECT_THAT(get("whole/config.json"), testing::HasSubstr("\"dtype\": \"bfloat16\""));
  EXPECT_EQ(get("parts/config.json"), get("whole/config.json"));
  works("hearth export base --type f32 --out wide; sed -i s/float32/bfloat16/ wide/config.json");
  works("hearth train recipe.yaml model=./wide --out from_wide");
  EXPECT_THAT(get("from_wide/config.json"), testing::HasSubstr("\"torch_dtype\": \"float32\""));
  EXPECT_EQ(io::SafetensorsFile(at("from_wide/model.safetensors")).tensors()[0].dtype, DType::f32);
}

TEST_F(Adapter, ARunResumesOnItsOwnBaseAndData) {
  works("cp -r base other; " + kTrain + " --out run2 train.steps=2");
  // One weight of the base has another bit.
  std::string weights = get("base/model.safetensors");
  const std::string good = weights;
  weights[weights.size() - 3] ^= 1;
  put("base/model.safetensors", weights);
  refused("hearth resume run2 train.steps=4",
          {"have changed since run2/checkpoints/", "model.path (2 files of ", "--accept-changed-inputs"});
  EXPECT_THAT(works("hearth resume run2 train.steps=4 model=./other"), testing::HasSubstr("done: 4 steps"));
  EXPECT_THAT(works("hearth resume run2 train.steps=6 model=./base --accept-changed-inputs"),
              testing::HasSubstr("done: 6 steps"));
  EXPECT_THAT(works("hearth resume run2 train.steps=7"), testing::HasSubstr("done: 7 steps"));
}

TEST_F(Adapter, ARunHoldsNoConfigOfAModel) {
  EXPECT_FALSE(has("run/config.json"));
  EXPECT_THAT(works("hearth train --resume --out run train.steps=5"), testing::HasSubstr("resum"));
  EXPECT_FALSE(has("run/config.json"));
  EXPECT_THAT(works("hearth eval run"), testing::HasSubstr("loss"));
}

TEST_F(Adapter, TablesThatAreOneAreNotMergedAsTwo) {
  works(kTrain + " --out table adapter.modules_to_save=[embed_tokens]");
  works("hearth merge --adapter table --out merged");
  works("sed -i '1s/{/{\"tie_word_embeddings\": true,/; 2,$s/.*tie_word.*//' base/config.json");
  refused("hearth merge --adapter table --out tied", {"embed_tokens", "ties", "base/config.json"});
}

TEST_F(Adapter, PlanShowsFrozenWeights) {
  const std::string out = works("hearth plan recipe.yaml model=./base adapter=lora precision=bf16");
  EXPECT_THAT(out, testing::HasSubstr("frozen weights"));
  EXPECT_THAT(works("hearth plan recipe.yaml model=./base"),
              testing::Not(testing::HasSubstr("frozen weights")));
}

TEST_F(Adapter, PlansTheMemoryOfSlots) {
  EXPECT_THAT(works("hearth plan serve ./base --slots 3 --context 50"),
              testing::HasSubstr("3 slots of 50 tokens"));
  EXPECT_THAT(works("hearth plan serve ./base --slots 3 --json"), testing::HasSubstr("\"cache_bytes\":"));
  refused("hearth plan serve ./base --slots 3 --context 50 --memory 2KiB",
          {"need", "2.00 KiB are available"});
  refused("hearth plan serve ./base --memory much", {"--memory", "'much'"});
  refused("hearth plan", {"recipe is required", "hearth plan --help"});
}

TEST_F(Adapter, Mistakes) {
  refused(kTrain + " adapter.targets=[q_prj]", {"adapter.targets", "'q_prj'", "did you mean 'q_proj'?"});
  refused(kTrain + " adapter.targets=[]", {"adapter.targets", "all-linear"});
  refused(kTrain + " adapter.rank=0", {"adapter.rank", "1 to 65536"});
  refused(kTrain + " adapter=lore", {"adapter.name", "'lora'"});
  refused(kTrain + " adapter.quantize=nf3", {"adapter.quantize", "'nf4'"});
  refused(kTrain + " quantize.qat=q4_0", {"quantize.qat", "an adapter freezes", "--type q4_0"});
  refused(kTrain + " quantize.qat=fp8 adapter.quantize=nf4", {"quantize.qat and adapter.quantize", "remove"});
  refused(kTrain + " quantize.qat=fp8 quantize.group=8", {"quantize.group", "8da4w", "'fp8'"});
  refused(kTrain + " quantize.qat=int4",
          {"quantize.qat=int4 rounds no layer", "128 inputs", "quantize.group"});
  refused(kTrain + " --out run", {"run already contains a run"});
  refused("hearth train recipe.yaml model=./base adapter.path=base", {"base/adapter_config.json"});
  refused("hearth merge --adapter run --out base", {"base'", "files in it"});
  refused("hearth merge --adapter base --out merged", {"adapter_config.json"});
  refused("hearth merge --adapter nowhere --out merged", {"there is no adapter at 'nowhere'"});
  refused("hearth merge --adapter run --out merged --model none", {"'none'", "--base"});
  works("sed -i 's/\"r\": 2/\"r\": 4/' run/adapter_config.json");
  refused("hearth merge --adapter run --out merged", {"lora_A.weight", "[4, 12]", "[2, 12]"});
  EXPECT_FALSE(has("merged"));
}

}  // namespace
}  // namespace hearth
