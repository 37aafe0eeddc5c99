#include "cli/program.h"
#include "data/files.h"
#include "io/safetensors.h"

namespace hearth {
namespace {

/// model/: a tiny Llama of random weights with a token for each byte, as llama.cpp has them.
class Export : public Program {
 protected:
  Export() {
    put("tiny/config.json",
        R"({"model_type": "llama", "vocab_size": 260, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.2})");
    std::string vocab;
    for (int byte = 0, more = 256; byte < 256; ++byte) {
      const bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      vocab += fmt::format("{}\"\\u{:04x}\": {}", byte == 0 ? "" : ", ", plain ? byte : more++, byte);
    }
    put("tiny/tokenizer.json",
        fmt::format(R"({{"added_tokens": [{{"id": 256, "content": "</s>", "special": true}}],
      "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}},
      "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}})",
                    vocab));
    put("tiny/tokenizer_config.json", R"({"eos_token": "</s>"})");
    put("text.txt", std::string(300, 'a'));
    put("recipe.yaml",
        "threads: 1\ndata: {path: text.txt, context: 9, cache: cache}\ntrain: {steps: 1, batch: 1}\n");
    works("hearth train recipe.yaml model.config=tiny/config.json --out model");
  }
  void change(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = get(file);
    ASSERT_NE(text.find(from), std::string::npos) << file << " lacks " << from;
    put(file, text.replace(text.find(from), from.size(), to));
  }
  /// Nothing that is not complete lies in a folder.
  void expect_no_temporaries(const std::string& folder) const {
    for (const auto& entry : fs::directory_iterator(at(folder)))
      EXPECT_EQ(entry.path().filename().string().find(".hearth-"), std::string::npos) << entry.path();
  }
  /// Writes the weights again with one value changed.
  void set_value(float value) const {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<io::TensorView> views;
    {
      const io::SafetensorsFile file(at("model/model.safetensors"));
      for (const io::TensorView& view : file.tensors()) {
        views.push_back(view);
        bytes.emplace_back(view.bytes.begin(), view.bytes.end());
      }
    }
    for (size_t i = 0; i < views.size(); ++i) {
      if (views[i].name == "model.layers.1.mlp.down_proj.weight")
        std::memcpy(bytes[i].data() + 40, &value, sizeof value);
      views[i].bytes = bytes[i];
    }
    io::write_safetensors(at("model/model.safetensors"), views);
  }
};

TEST_F(Export, GgufIsWrittenAndWrittenAgain) {
  for (const char* type : {"f32", "q4_0", "q8_0"}) {
    EXPECT_THAT(works(fmt::format("hearth export model --format gguf --type {} --out m.gguf 2>&1", type)),
                testing::HasSubstr("m.gguf: 21 tensors"));
    EXPECT_TRUE(get("m.gguf").starts_with("GGUF"));
  }
}

/// The tiny model has rows of less than 256 elements, which K-quants cannot store.
TEST_F(Export, RowsThatAKQuantCannotStoreAreNamed) {
  EXPECT_THAT(works("hearth export model --type q4_K --out m.gguf 2>&1"),
              testing::AllOf(testing::HasSubstr("m.gguf: 21 tensors"),
                             testing::ContainsRegex("note: [0-9]+ matrices are stored as (F16|Q5_0), because "
                                                    "Q4_K needs rows of a multiple of 256 elements")));
  works("hearth export m.gguf --type f32 --out back");
}

TEST_F(Export, CompressedTensorsAreReadBack) {
  EXPECT_THAT(works("hearth export model --format compressed-tensors --scheme w8a8 --out small"),
              testing::HasSubstr("small: a model folder with 14 layers in w8a8"));
  EXPECT_LT(fs::file_size(at("small/model.safetensors")), fs::file_size(at("model/model.safetensors")));
  works("hearth export small --type f32 --out back");
  EXPECT_THAT(get("small/config.json"), testing::HasSubstr("int-quantized"));
  EXPECT_THAT(get("back/config.json"), testing::Not(testing::HasSubstr("quantization_config")));
}

TEST_F(Export, FlagsOfCompressedTensorsAreChecked) {
  const std::string start = "hearth export model --out x --format ";
  refused(start + "compressed-tensors", {"--scheme", "w4a16"});
  refused(start + "hf --scheme fp8", {"--scheme is for --format compressed-tensors", "hf"});
  refused(start + "compressed-tensors --scheme fp8 --group 32", {"--group is for --scheme w4a16"});
  refused(start + "compressed-tensors --scheme w4a16", {"no layer has a multiple of 128 inputs", "--group"});
  refused("hearth export model --out x.gguf --format compressed-tensors --scheme fp8",
          {"writes a folder", "x.gguf"});
  works("hearth train tiny.yaml --out pictures");
  refused("hearth export pictures --out x --format compressed-tensors --scheme fp8",
          {"is for language models", "'pictures'"});
  EXPECT_FALSE(has("x"));
}

/// An exported file gives what an exported folder gives.
TEST_F(Export, GgufIsAModelForEveryVerb) {
  works("hearth export model --type f32 --out m.gguf && hearth export model --out folder");
  const auto works_with = [&](const std::string& verb, const std::string& model) {
    return works("export XDG_CACHE_HOME=$PWD/unpacked; hearth " + fmt::format(fmt::runtime(verb), model));
  };
  for (const std::string verb :
       {"generate ./{} --prompt aab --max-tokens 6 --context 20 2>.tokens", "tokenize ./{} --text 'ab </s>'",
        "eval ./{} data=text.txt data.cache=cache data.context=9 | sed 's/.*: loss/loss/'"})
    EXPECT_EQ(works_with(verb, "m.gguf"), works_with(verb, "folder")) << verb;
  for (const auto& [model, run] : {std::pair("m.gguf", "first"), {"folder", "second"}}) {
    works_with(fmt::format("train recipe.yaml adapter.rank=2 model=./{{}} --out {}", run), model);
    works_with("eval {}", run);
    works_with("export {0} --out {0}-merged", run);
  }
  EXPECT_EQ(get("first-merged/model.safetensors"), get("second-merged/model.safetensors"));
  works_with("plan recipe.yaml model=./{}", "m.gguf");
  refused("hearth train recipe.yaml model=./none.gguf --out run", {"'./none.gguf' is not a GGUF file"});
}

TEST_F(Export, AGgufFileTeachesAsItsFolderDoes) {
  works("hearth export model --type f32 --out m.gguf && hearth export model --out folder");
  for (const char* teacher : {"m.gguf", "folder"})
    works(
        fmt::format("export XDG_CACHE_HOME=$PWD/unpacked; hearth train recipe.yaml seed=3 train.steps=3 "
                    "model.config=tiny/config.json distill.from={0} --out by-{0}",
                    teacher));
  EXPECT_TRUE(get("by-m.gguf/model.safetensors") == get("by-folder/model.safetensors"));
  refused("hearth train recipe.yaml model.config=tiny/config.json distill.from=none.gguf --out run",
          {"there is no teacher file 'none.gguf'"});
}

TEST_F(Export, WhatLlamaCppCannotSayIsRefusedInOneSentence) {
  const std::string gguf = "hearth export model --format gguf --out m.gguf";
  const std::string config = get("model/config.json");
  change("model/config.json", R"("model_type": "llama")", R"("hidden_act": "gelu", "model_type": "llama")");
  refused(gguf, {"config.json", "silu", "gelu"});
  put("model/config.json", config);
  for (const std::string family : {"granite", "qwen3_moe", "mixtral"}) {
    change("model/config.json", R"("model_type": "llama")", fmt::format(R"("model_type": "{}")", family));
    refused(gguf, {"config.json", "model_type", fmt::format("'{}'", family), "--format hf"});
    put("model/config.json", config);
  }
  put("model/config.json",
      R"({"model_type": "gpt2", "vocab_size": 100, "n_embd": 16, "n_layer": 2, "n_head": 2})");
  refused(gguf, {"config.json", "model_type", "'gpt2'", "--format hf"});
  put("model/config.json", config);
  change("model/config.json", R"("num_hidden_layers": 2)", R"("num_hidden_layers": 3)");
  refused(gguf, {"'model.layers.2.input_layernorm.weight'"});
  put("model/config.json", config);
  change("model/config.json", R"("num_hidden_layers": 2)", R"("num_hidden_layers": 1)");
  refused(gguf, {"'model.layers.1.", "not a tensor of the model in config.json"});
  put("model/config.json", config);
  change("model/tokenizer.json", R"("use_regex": true)", R"("use_regex": false)");
  refused(gguf, {"tokenizer.json", "pre_tokenizer", "llama.cpp"});
  EXPECT_FALSE(has("m.gguf"));
}

TEST_F(Export, ValuesThatATypeCannotHoldAreRefusedAndNothingIsLeft) {
  works("rm model/best.safetensors");
  set_value(70000);
  refused("hearth export model --format gguf --out m.gguf",
          {"65504", "'model.layers.1.mlp.down_proj.weight'"});
  refused("hearth export model --type f16 --out half", {"65504", "--type bf16"});
  works("hearth export model --format gguf --type bf16 --out fine.gguf");
  EXPECT_FALSE(has("m.gguf") || has("half"));
  expect_no_temporaries(".");
}

TEST_F(Export, AnEmptyFolderIsFilledAndNothingOfOthersIsTouched) {
  put("out.partial/mine.txt", "mine");
  put("m.gguf.tmp", "mine");
  fs::create_directories(at("out"));
  works("hearth export model --out out && hearth export model --out m.gguf");
  EXPECT_EQ(get("out/model.safetensors"), get("model/model.safetensors"));
  EXPECT_EQ(get("out.partial/mine.txt"), "mine");
  EXPECT_EQ(get("m.gguf.tmp"), "mine");
  works("mkdir here && cd here && hearth export ../model --out .");
  EXPECT_EQ(get("here/model.safetensors"), get("model/model.safetensors"));
  for (const char* folder : {".", "out", "here"}) expect_no_temporaries(folder);
}

TEST_F(Export, AFolderThatCannotBeWrittenToIsRefusedBeforeAnyWork) {
  // Weights that cannot be opened would be found later.
  cut("model/best.safetensors", 3);
  put("full/mine.txt", "mine");
  for (const char* out : {"full", "text.txt", "/proc/hearth", "text.txt/out"}) {
    refused(fmt::format("hearth export model --out {}", out), {out});
    EXPECT_EQ(get(".err").find("safetensors"), std::string::npos) << get(".err");
  }
  for (const char* out : {"/proc/hearth.gguf", "none/m.gguf"}) {
    refused(fmt::format("hearth export model --out {}", out), {fmt::format("cannot write to {}", out)});
    EXPECT_EQ(get(".err").find("safetensors"), std::string::npos) << get(".err");
  }
  refused("hearth export model --out a/b/out", {"model/best.safetensors"});
  EXPECT_FALSE(has("a"));
  EXPECT_EQ(get("full/mine.txt"), "mine");
  expect_no_temporaries(".");
}

TEST_F(Export, TheFormatFollowsFromTheEnding) {
  EXPECT_THAT(works("hearth export model --type q8_0 --out m.gguf 2>&1"),
              testing::HasSubstr("m.gguf: 21 tensors"));
  EXPECT_TRUE(get("m.gguf").starts_with("GGUF"));
  EXPECT_THAT(works("hearth export model --out folder"), testing::HasSubstr("folder: a model folder"));
  refused("hearth export model --format hf --out n.gguf", {"'n.gguf'", "--format gguf"});
  refused("hearth export model --shard-size 1MB --out n.gguf", {"--shard-size"});
  EXPECT_FALSE(has("n.gguf"));
}

TEST_F(Export, ARunOnImagesBecomesAFolderThatPredictAndEvalOpen) {
  works("hearth train tiny.yaml --out pictures train.eval_every=2 optimizer.lr=0.5");
  put("a.png", data::encode_png(data::speckled(8, 8, 3)));
  EXPECT_THAT(works("hearth export pictures --out small"),
              testing::AllOf(testing::HasSubstr("small: model.safetensors (pictures/best.safetensors"),
                             testing::HasSubstr("config.yaml"), testing::HasSubstr("hearth predict")));
  // The exported file has the class names beside the weights.
  const auto weights = [&](const std::string& file) {
    const std::string bytes = get(file);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    return bytes.substr(sizeof header + header);
  };
  EXPECT_TRUE(weights("small/model.safetensors") == weights("pictures/best.safetensors"));
  const auto numbers = [](const std::string& text) { return text.substr(text.find(": ")); };
  EXPECT_EQ(numbers(works("hearth eval small")), numbers(works("hearth eval pictures")));
  const auto classes = [](const std::string& text) { return text.substr(0, text.find("weights:")); };
  EXPECT_EQ(classes(works("hearth predict small a.png")), classes(works("hearth predict pictures a.png")));
  works("hearth export pictures --type bf16 --out smaller && hearth predict smaller a.png");
  EXPECT_LT(fs::file_size(at("smaller/model.safetensors")),
            fs::file_size(at("small/model.safetensors")) * 3 / 4);
  refused("hearth export pictures --out p.gguf",
          {"a language model", "'pictures'", "the run of an image model"});
  refused("hearth export pictures --shard-size 1MB --out p", {"--shard-size", "the run of an image model"});
  EXPECT_FALSE(has("p.gguf") || has("p"));
}

TEST_F(Export, MistakesAreNamed) {
  refused("hearth export none --out out", {"there is no model, run or adapter at 'none'"});
  refused("hearth export model --type q8_0 --out out", {"--type", "q8_0"});
  refused("hearth export model --shard-size big --out out", {"--shard-size", "'big'"});
  refused("hearth export model --out tiny", {"tiny'", "files in it"});
  refused("hearth export model --format gguf --out tiny", {"'tiny'", "tiny/model.gguf"});
  refused("hearth export model --format gguf --shard-size 1MB --out m.gguf", {"--shard-size"});
  refused("hearth export model --format onnx --out m", {"--format"});
}

TEST_F(Export, ShardsHoldEveryTensorOnce) {
  works("hearth export model --shard-size 6KB --out shards");
  EXPECT_TRUE(has("shards/model.safetensors.index.json"));
  EXPECT_FALSE(has("shards/model.safetensors"));
  for (const fs::directory_entry& entry : fs::directory_iterator(at("shards"))) {
    if (entry.path().extension() != ".safetensors") continue;
    const io::SafetensorsFile shard(entry.path());
    size_t num_bytes = 0;
    for (const io::TensorView& view : shard.tensors()) num_bytes += view.bytes.size();
    EXPECT_TRUE(num_bytes <= 6000 || shard.tensors().size() == 1) << entry.path() << ": " << num_bytes;
  }
  works("hearth export shards --shard-size 1GB --out whole");
  EXPECT_FALSE(has("whole/model.safetensors.index.json"));
  const io::SafetensorsFile before(at("model/model.safetensors")), after(at("whole/model.safetensors"));
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const io::TensorView& view : before.tensors()) {
    ASSERT_NE(after.find(view.name), nullptr) << view.name;
    EXPECT_TRUE(std::ranges::equal(view.bytes, after.find(view.name)->bytes)) << view.name;
  }
}

}  // namespace
}  // namespace hearth
