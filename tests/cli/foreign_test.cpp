#include "cli/program.h"

#include <fmt/format.h>

#include "io/safetensors.h"
#include "tiny_language_model.h"
#include "torch_writer.h"

namespace hearth {
namespace {

/// What people bring from elsewhere: each verb that opens it says what to do. model/: the config and
/// tokenizer of a tiny model without weights.
class Foreign : public Program {
 protected:
  Foreign() {
    write_tiny_model(at("model"));
    put("text.txt", std::string(600, 'a'));
    put("recipe.yaml",
        "threads: 1\ndata: {path: text.txt, context: 16, cache: cache}\ntrain: {steps: 1, batch: 1}\n");
  }
  /// Every verb that opens weights refuses model/ with these parts.
  void all_refuse(const std::vector<std::string>& parts) const {
    for (const char* line :
         {"train recipe.yaml model=./model --out run", "validate recipe.yaml model=./model",
          "eval model data=text.txt data.cache=cache", "generate model --prompt a", "export model --out out",
          "export model --out out.gguf"})
      refused(fmt::format("hearth {}", line), parts);
    EXPECT_FALSE(has("run") || has("out") || has("out.gguf") || has("cache"));
  }
  std::string validate(const std::string& data) const {
    return "hearth validate recipe.yaml model.config=model/config.json model.tokenizer=model data.path=" +
           data;
  }
  static constexpr const char* kPointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2471645608\n";
};

TEST_F(Foreign, NamesOnAHubNeedAPrefix) {
  const std::string name = "meta-llama/Llama-3.2-1B";
  put("adapter/adapter_config.json",
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
      "base_model_name_or_path": "meta-llama/Llama-3.2-1B"})");
  for (const std::string line :
       {"train recipe.yaml model={} --out run", "validate recipe.yaml model={}", "plan recipe.yaml model={}",
        "eval {} data=text.txt", "generate {} --prompt a", "export {} --out out", "export {} --out out.gguf",
        "merge --adapter {} --out out", "merge --adapter adapter --model {} --out out",
        "tokenize {} --text a"}) {
    refused(fmt::format(fmt::runtime("hearth " + line), name),
            {"'" + name, "write hf:meta-llama/Llama-3.2-1B"});
  }
  refused("hearth generate https://huggingface.co/Qwen/Qwen3-0.6B --prompt a", {"write hf:Qwen/Qwen3-0.6B"});
  refused("hearth generate adapter --prompt a",
          {"from adapter_config.json", "--base", "write hf:meta-llama/"});
  refused(validate("tatsu-lab/alpaca"), {"'tatsu-lab/alpaca'", "write hf:datasets/tatsu-lab/alpaca"});
  for (const char* path :
       {"./model/none", "/none/model", "model/none/more", "data/none.jsonl", "model/none"}) {
    const Result result = shell(fmt::format("hearth generate {} --prompt a", path));
    EXPECT_EQ(result.err.find("hf:"), std::string::npos) << result.err;
  }
}

TEST_F(Foreign, RecipesBringTheirModels) {
  const std::string env = "export XDG_CACHE_HOME=$PWD/unpacked; ";
  for (const char* line : {"shakespeare-char", "recipes/shakespeare-char.yaml", "diffuse-mnist",
                           "pretrain-llama model.config=recipes/shakespeare/config.json"})
    works(fmt::format("{}hearth plan {} train.batch=1", env, line));
  const std::string train = env +
                            "hearth train shakespeare-char data=text.txt data.context=16 train.batch=1 "
                            "data.cache=cache schedule.warmup_steps=0 --out run train.steps=";
  works(train + "1");
  fs::remove_all(at("unpacked"));
  works(env + "hearth train --resume --out run train.steps=2");
  refused("unset HOME; XDG_CACHE_HOME= hearth plan shakespeare-char", {"recipes/shakespeare", "set HOME"});
  for (const char* config : {"tiny/none/config.json", "recipes/none/config.json"}) {
    refused(fmt::format("hearth plan recipe.yaml model.config={}", config),
            {fmt::format("there is no file '{}'", config)});
    EXPECT_EQ(get(".err").find("hf:"), std::string::npos);
  }
}

TEST_F(Foreign, PointersOfGitLfsAreNoFiles) {
  const std::vector<std::string> parts = {"model/model.safetensors", "git-lfs", "git lfs pull",
                                          "hf download"};
  put("model/model.safetensors", kPointer);
  all_refuse(parts);
  put("pointer.jsonl", kPointer);
  refused(validate("pointer.jsonl"), {"pointer.jsonl", "git lfs pull"});
  put("model/tokenizer.json", kPointer);
  refused("hearth tokenize model --text a", {"model/tokenizer.json", "git lfs pull"});
  put("model/config.json", kPointer);
  refused("hearth plan recipe.yaml model=./model", {"model/config.json", "git lfs pull"});
  put("a.png", kPointer);
  works("hearth train tiny.yaml --out run");
  refused("hearth predict run a.png", {"a.png", "git lfs pull"});
}

TEST_F(Foreign, OldPicklesAreConverted) {
  refused("hearth train recipe.yaml model=./model --out run",
          {"no weights found (model.safetensors", "model"});
  put("model/consolidated.00.pth", "PK");
  all_refuse({"model, found consolidated.00.pth", "rename it to pytorch_model.bin"});
  fs::remove(at("model/consolidated.00.pth"));
  // Even under another name, by its content.
  const std::string pickle = "\x80\x02\x8a\x0a more of a pickle";
  for (const char* file : {"model/pytorch_model.bin", "model/model.safetensors"}) {
    put(file, pickle);
    all_refuse({file, "before PyTorch 1.6", "weights_only=True"});
    fs::remove(at(file));
  }
  put("weights.pt", pickle);
  refused("hearth train tiny.yaml init=weights.pt --out run",
          {"weights.pt", "torch.load('weights.pt'", "'weights.new.pt'"});
  refused("hearth validate tiny.yaml init=weights.pt", {"weights.pt", "before PyTorch 1.6"});
  put("adapter/adapter_config.json",
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"],
      "base_model_name_or_path": "model"})");
  put("adapter/adapter_model.bin", pickle);
  refused("hearth train recipe.yaml model=./model init=text.txt adapter.path=adapter --out run",
          {"text.txt"});
  put("model/model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
  refused("hearth merge --adapter adapter --out merged", {"adapter/adapter_model.bin", "before PyTorch 1.6"});
}

TEST_F(Foreign, FilesOfTorchRunNothing) {
  using namespace torch_writer;  // NOLINT(google-build-using-namespace)
  const std::string hostile = torch_writer::file(
      dict({{"model", dict({})}, {"x", call(name("os", "system"), {text("touch pwned")})}}), {});
  put("weights.pt", hostile);
  refused("hearth train tiny.yaml init=weights.pt --out run", {"weights.pt", "'os.system'", "runs no code"});
  refused("hearth validate tiny.yaml init=weights.pt", {"'os.system'"});
  put("model/pytorch_model.bin", hostile);
  all_refuse({"model/pytorch_model.bin", "'os.system'"});
  EXPECT_FALSE(has("pwned"));
}

/// A run's weights in torch's format, under "model" and with the prefix of DistributedDataParallel.
TEST_F(Foreign, FilesOfTorchAreWeights) {
  works("hearth train tiny.yaml --out run");
  put("weights.pth",
      torch_writer::checkpoint(io::SafetensorsFile(at("run/model.safetensors")).tensors(), "module."));
  works("hearth validate tiny.yaml init=weights.pth");
  works("hearth train tiny.yaml init=run/model.safetensors --out first");
  works("hearth train tiny.yaml init=weights.pth --out second");
  EXPECT_EQ(get("first/model.safetensors"), get("second/model.safetensors"));
}

TEST_F(Foreign, GgufFilesAreNoModelFolders) {
  put("model/model-q8_0.gguf", "GGUF");
  all_refuse({"model/model-q8_0.gguf", "GGUF", "a complete model"});
}

TEST_F(Foreign, UnsupportedQuantizationsAreRefusedByTheirMethod) {
  const std::string config = get("model/config.json");
  const auto with = [&](const std::string& method) {
    return fmt::format(R"({{"quantization_config": {{"quant_method": "{}"}}, )", method) + config.substr(1);
  };
  for (const std::string method : {"hqq", "quanto", "mxfp4"}) {
    put("model/config.json", with(method));
    all_refuse({"model/config.json", "quantization_config", method, "adapter.quantize=nf4"});
    refused("hearth plan recipe.yaml model=./model", {"quantization_config", method});
  }
}

TEST_F(Foreign, DataOfOtherFormatsIsConverted) {
  put("data.csv", "prompt,completion\na,b\n");
  refused(validate("data.csv"), {"CSV", "data.csv", "pandas.read_csv('data.csv').to_json('data.jsonl'"});
  put("data.tsv", "prompt\tcompletion\n");
  refused(validate("data.tsv"), {"TSV", "read_table"});
  put("data.parquet", "PAR1xxxxPAR1");
  refused(validate("data.parquet"), {"Parquet", "pandas.read_parquet('data.parquet')"});
  put("hub/data/train-0.parquet", "PAR1xxxxPAR1");
  refused(validate("hub"), {"Parquet", "pandas.read_parquet('hub/data').to_json('hub/data.jsonl'"});
  put("data.jsonl.gz", "\x1f\x8b\x08 more");
  refused(validate("data.jsonl.gz"), {"gzip", "gunzip -k data.jsonl.gz"});
  put("data.jsonl.zst", "\x28\xb5\x2f\xfd more");
  refused(validate("data.jsonl.zst"), {"Zstandard", "unzstd data.jsonl.zst"});
  put("data.jsonl.xz", "\xfd\x37zXZ more");
  refused(validate("data.jsonl.xz"), {"xz", "unxz -k data.jsonl.xz"});
  // By what it holds, whatever its name.
  put("data.txt", "\x1f\x8b\x08 more");
  refused(validate("data.txt"), {"gzip", "data.txt"});
  refused("hearth tokenize model data.txt", {"gzip", "gunzip -k data.txt"});
  refused(
      "hearth train recipe.yaml model.config=model/config.json model.tokenizer=model data.val_path=data.csv "
      "--out run",
      {"CSV", "data.csv"});
  works("hearth train recipe.yaml model.config=model/config.json model.tokenizer=model --out base");
  refused("hearth eval base data=data.parquet", {"Parquet"});
  EXPECT_THAT(works("hearth tokenize model data.csv"), testing::HasSubstr("data.csv: 22 tokens"));
}

TEST_F(Foreign, AContextBeyondTheModelsPositionsIsSaid) {
  put("text.txt", std::string(3000, 'a'));
  const std::string note = "a context of 600 tokens is above max_position_embeddings 512";
  const std::string more =
      " recipe.yaml model.config=model/config.json model.tokenizer=model data.context=600";
  EXPECT_THAT(works("hearth validate" + more), testing::HasSubstr(note));
  EXPECT_THAT(works("hearth train" + more + " --out run"), testing::HasSubstr(note));
  EXPECT_THAT(shell("hearth eval run").err, testing::HasSubstr(note));
  EXPECT_THAT(shell("hearth eval run data.context=500").err, testing::Not(testing::HasSubstr("above")));
  EXPECT_THAT(shell("hearth generate run --prompt-file text.txt -n 1").err,
              testing::HasSubstr("above max_position_embeddings 512"));
}

}  // namespace
}  // namespace hearth
