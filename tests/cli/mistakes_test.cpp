#include <cmath>

#include <limits>
#include <sstream>

#include "cli/program.h"
#include "data/files.h"
#include "io/safetensors.h"

namespace hearth {
namespace {

using data::big_endian;
using data::encode_jpeg;
using data::speckled;

std::string idx_images(uint32_t count, uint32_t side, size_t num_bytes) {
  return big_endian(0x803) + big_endian(count) + big_endian(side) + big_endian(side) +
         std::string(num_bytes, 'x');
}
std::string idx_labels(uint32_t count, const std::string& labels) {
  return big_endian(0x801) + big_endian(count) + labels;
}

class Mistakes : public Program {
 protected:
  void put_idx(const std::string& train_images, const std::string& train_labels) const {
    put("mnist/train-images-idx3-ubyte", train_images);
    put("mnist/train-labels-idx1-ubyte", train_labels);
    put("mnist/t10k-images-idx3-ubyte", idx_images(4, 8, 256));
    put("mnist/t10k-labels-idx1-ubyte", idx_labels(4, std::string(4, '\1')));
  }
  /// A folder per class with images that can be read.
  void put_images() const {
    for (const char* split : {"train", "test"}) {
      for (const char* name : {"cat", "dog"}) {
        put(fmt::format("pictures/{}/{}/a.png", split, name), data::encode_png(speckled(8, 8, 3)));
        put(fmt::format("pictures/{}/{}/b.jpg", split, name), encode_jpeg(speckled(8, 8, 3)));
      }
    }
  }
  void put_tensors(const std::vector<float>& images, const std::vector<int32_t>& labels) const {
    const int64_t count = std::ssize(labels);
    fs::create_directories(at("tensors"));
    io::write_safetensors(at("tensors.safetensors"), {{.name = "images",
                                                       .dtype = DType::f32,
                                                       .shape = Shape{count, 3, 8, 8},
                                                       .bytes = std::as_bytes(std::span(images))},
                                                      {.name = "labels",
                                                       .dtype = DType::i32,
                                                       .shape = Shape{count},
                                                       .bytes = std::as_bytes(std::span(labels))}});
  }
};

TEST_F(Mistakes, NumbersOutOfRangeAreRefusedByEveryFlag) {
  put("p.csv", "id,lower,upper,size\na,0,3,64\n");
  const std::string lines[] = {
      "generate x --temperature", "generate x --top-p",    "generate x --top-k",
      "generate x --seed",        "generate x -n",         "generate x --context",
      "generate x --threads",     "eval x --limit",        "eval x --max-tokens",
      "pack p.csv --capacity",    "pack p.csv --seconds",  "plan tiny.yaml --link",
      "plan tiny.yaml --network", "plan tiny.yaml --sums", "plan tiny.yaml --host-memory",
      "bench mlp --threads",      "checkpoints x --prune"};
  for (const std::string& line : lines) {
    for (const char* value : {"nan", "inf", "-1", "9223372036854775808", "1e400", "''", "0x", "1,5"}) {
      const Result result = shell(fmt::format("hearth {} {}", line, value));
      EXPECT_EQ(result.code, 2) << line << " " << value << "\n" << result.out << result.err;
      EXPECT_LT(result.err.size(), 520U) << line << " " << value;
    }
  }
  refused("hearth plan tiny.yaml --link 0", {"--link", "not in range"});
  for (const char* line :
       {"train tiny.yaml --out ''", "export x --out ''", "merge --model x --adapter y --out ''"})
    refused(fmt::format("hearth {}", line), {"--out: expected a value"});
}

TEST_F(Mistakes, NamesFromFilesDoNotSteerTheTerminal) {
  for (const char* name : {"cat\x1b[31m", "dog\rx"})
    put(fmt::format("pictures/{}/a.png", name), data::encode_png(speckled(8, 8, 3)));
  put("pictures/bad\x1b[2J/a.png", "none");
  put("r.yaml", "model: {name: mlp, num_classes: 3}\ndata: {kind: folder, path: pictures, image_size: 8}\n");
  const Result result =
      shell("hearth validate r.yaml; hearth train \"$(printf 'x\\033[31m.yaml')\"; hearth eval $'a\\nb'");
  const std::string image = data::encode_png(speckled(8, 8, 3));
  for (const char* name : {"train/a\x1b[31m", "train/b\rx", "test/a\x1b[31m", "test/b\rx"})
    put(fmt::format("good/{}/a.png", name), image);
  put("\x1b[31m.png", image);
  works("hearth train r.yaml data.path=good --out run train.steps=2 train.batch=2");
  const Result predicted = shell("hearth predict run *.png; hearth validate r.yaml data.path=good");
  EXPECT_THAT(predicted.out, testing::HasSubstr("\\x1b[31m.png: "));
  EXPECT_THAT(predicted.out, testing::HasSubstr("a\\x1b[31m "));
  EXPECT_EQ(get("run/report.html").find_first_of("\x1b\r"), std::string::npos);
  for (const std::string& text : {result.out, result.err, predicted.out})
    EXPECT_EQ(text.find_first_of("\x1b\r\x07"), std::string::npos) << text;
  EXPECT_THAT(result.err, testing::HasSubstr("\\x1b[31m"));
  refused(fmt::format("hearth train {}.yaml", std::string(200, 'a') + std::string(3000, '/')),
          {"aaa/", "[...]"});
  EXPECT_LT(get(".err").size(), 520U);
}

/// Every mistake that training finds before its first step, by the one sentence that both say.
TEST_F(Mistakes, WhatTrainingRefusesValidateRefusesToo) {
  const std::string labels = std::string(4, '\1'), more = std::string("\1\2\115\3", 4);
  const auto put_set = [&](const char* name, uint32_t count, uint32_t side, uint32_t test_count,
                           uint32_t test_side, const std::string& test_labels) {
    const auto put_split = [&](const std::string& prefix, uint32_t size, uint32_t length,
                               const std::string& all) {
      put(fmt::format("{}/{}-images-idx3-ubyte", name, prefix),
          idx_images(size, length, size * length * length));
      put(fmt::format("{}/{}-labels-idx1-ubyte", name, prefix), idx_labels(size, all.substr(0, size)));
    };
    put_split("train", count, side, labels);
    put_split("t10k", test_count, test_side, test_labels);
  };
  put_set("none", 0, 8, 4, 8, labels);
  put_set("untested", 4, 8, 0, 8, labels);
  put_set("points", 4, 1, 4, 1, labels);
  put_set("other", 4, 8, 4, 9, labels);
  put_set("classes", 4, 8, 4, 8, more);
  put("w.safetensors", "abc");
  const std::string idx = "data.kind=idx data.channels=1 data.path=";
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {idx + "none", "no images of the train split in none"},
      {idx + "untested", "no images of the test split in untested"},
      {idx + "points", "at least 4x4 pixels, got 1x1"},
      {idx + "other", "got 9x9x1 in the test split of other"},
      {idx + "classes", "classes has 78 classes, but model.num_classes is 10"},
      {"data.path=pictures", "data.kind=shapes generates its images"},
      {"memory=1KiB", "above memory=1.00 KiB"},
      {"init=none.safetensors", "none.safetensors"},
      {"init=w.safetensors", "w.safetensors"},
      {"model.name=resnet18 train.batch=3 data.drop_last=false", "at least 2 values per channel"},
      {"data.image_size=4096 data.count=1000000 train.batch=1000000", "are free"},
      {"device=emulated:3", "device=emulated:3"},
      {"device=emulated devices=2", "expected 2 discrete GPUs"},
      {"devices=2 supervise=false", "supervise=true"},
      {"devices=2 memory=1KiB", "above memory=1.00 KiB"},
      {"devices=2 data.count=3 train.batch=8", "too short for 2 devices"},
      {"devices=2 init=w.safetensors", "w.safetensors"},
      {"--out tiny.yaml", "tiny.yaml is not a folder"},
      {"--out tiny.yaml/run", "tiny.yaml is not a folder"},
      {"passes.off=[backward]", "cannot be switched off"}};
  for (const auto& [settings, part] : mistakes) {
    refused("hearth validate tiny.yaml " + settings, {part});
    const std::string validated = get(".err");
    refused("hearth train tiny.yaml " + settings, {part});
    // What is free changes from one call to the next.
    if (part != "are free") {
      EXPECT_EQ(get(".err"), validated) << settings;
    }
  }
  fs::remove_all(at("runs"));
  for (const char* settings : {"", "devices=2", "devices=2 parallel=pipeline", "devices=2 parallel=sharded",
                               "data.image_size=256 data.count=20000", "device=emulated"}) {
    EXPECT_THAT(works(fmt::format("hearth validate tiny.yaml {}", settings)),
                testing::HasSubstr("the recipe is well-formed"));
  }
  EXPECT_FALSE(has("runs"));
  works("hearth train tiny.yaml --out run");
  refused("hearth validate tiny.yaml --out run", {"run already contains a run"});
}

TEST_F(Mistakes, APipeIsNoFile) {
  works("mkfifo pipe && mkdir -p folder && mkfifo folder/config.yaml folder/config.json");
  for (const char* line :
       {"validate pipe", "train pipe", "train tiny.yaml init=pipe", "pack pipe", "tokenize pipe",
        "eval folder", "generate folder -p x", "checkpoints folder/config.yaml"}) {
    // A line that waits for a writer is ended.
    const Result result = shell(fmt::format("timeout 60 '{}' {}", kProgram, line));
    EXPECT_EQ(result.code, 2) << line << result.err;
    EXPECT_THAT(result.err, testing::MatchesRegex("hearth: .*\n")) << line;
  }
}

TEST_F(Mistakes, InTheCommandLine) {
  refused("hearth tain tiny.yaml", {"'tain'", "did you mean 'train'?"});
  refused("hearth --nope", {"--nope", "hearth --help"});
  refused("hearth train", {"expected a recipe"});
  refused("hearth train none.yaml", {"no recipe file 'none.yaml'", "hearth ls"});
  refused("hearth plan .", {"expected a recipe file, got the folder '.'", "data.path=."});
  refused("hearth train dmo", {"'dmo'", "did you mean 'demo'?"});
  refused("hearth train tiny.yaml --treads", {"--treads", "did you mean '--threads'?"});
  refused("hearth train tiny.yaml --treads 3", {"treads", "did you mean 'threads'?"});
  refused("hearth train tiny.yaml --out run --resum", {"--resum", "did you mean '--resume'?"});
  refused("hearth train tiny.yaml other.yaml", {"train.batch=64", "'other.yaml'"});
  refused("hearth predict", {"run", "hearth predict --help"});
  refused("hearth ls --key", {"--key", "hearth ls --help"});
  refused("hearth plan tiny.yaml --memory=much", {"20GiB", "--memory", "'much'"});
  refused("hearth plan tiny.yaml --memory=20", {"20GiB", "--memory", "'20'"});
  refused("hearth plan tiny.yaml devices=2xmuch", {"2x20GiB", "devices", "'2xmuch'"});
  refused("hearth plan tiny.yaml devices=0x20GiB", {"devices", "1 to 64"});
  refused("hearth dump tiny.yaml --after=bakward", {"'bakward'", "did you mean 'backward'?"});
  refused("hearth bench mlp-b64-fp16", {"'mlp-b64-fp16'", "did you mean 'mlp-b64-fp32'?"});
  refused("hearth bench", {"expected a case", "comm"});
  refused("hearth bench comm --transport telepathy", {"shm, nccl or mpi", "'telepathy'"});
  refused("hearth bench comm --transport nccl --ranks 2", {"each rank needs a GPU: 2 ranks, but 0 GPUs"});
  refused("hearth train tiny.yaml devices=2 parallel=sharded --dump-gradients g.safetensors",
          {"parallel=data or zero1 for --dump-gradients", "got sharded", "devices=1"});
  refused("hearth bench comm --ranks 1", {"--ranks", "2 to 64", "1"});
  refused("hearth bench comm --max lots", {"--max", "'lots'", "64KiB"});
  refused("hearth bench comm --min 2MiB --max 1MiB", {"--min", "1 to 1048576"});
  refused("hearth bench comm --wire f64", {"--wire", "'f64'", "bf16"});
  refused("hearth bench mlp-b64-fp32 --steps 0", {"--steps", "0", "1 to 1000000"});
  refused("hearth bench llama15m_answer-b1-fp32 --steps 1 --profile", {"--profile", "training"});
  refused("hearth bench mlp-b64-fp32 --model-gpu rx580", {"'rx580'", "rx7900xt", "rx7900xtx"});
  refused("hearth bench mlp-b64-fp32 --model-gpu rx7900xt --workers 2 --link=-1",
          {"not in range", "--link", "-1"});
  refused("hearth bench llama15m_answer-b1-fp32 --model-gpu rx7900xt",
          {"training", "llama15m_answer-b1-fp32"});
  refused("hearth bench matmul_up-b4-bf16 --steps 1", {"gpu", "matmul_up-b4-bf16", "--device gpu"});
  refused("hearth bench mlp-b64-fp32 --device cuda", {"--device", "'cuda'", "gpu:0"});
  refused("hearth bench llama15m_answer-b1-fp32 --device emulated", {"--device cpu", "emulated"});
  refused("hearth cp dmo mine.yaml", {"'dmo'", "hearth ls"});
  refused("hearth cp demo tiny.yaml", {"tiny.yaml exists already"});
}

/// Whatever was built beside the program.
const std::string kNoModules = "export HEARTH_MODULES=. && ";

TEST_F(Mistakes, InKeysAndValues) {
  refused("hearth train tiny.yaml bacth=3", {"\"bacth\"", "override \"bacth=3\"", "'train.batch'"});
  refused("hearth train tiny.yaml train=5", {"keys of the section 'train'", "'5'", "override"});
  refused("hearth train tiny.yaml train.batch=lots", {"train.batch", "'lots'", "override"});
  refused("hearth train tiny.yaml data.mean=[0.1,0.2]", {"3 numbers", "data.mean", "got 2", "override"});
  refused("hearth train tiny.yaml model.name=resnet19", {"'resnet19'", "did you mean 'resnet18'?"});
  refused("hearth train tiny.yaml model=nowhere", {"'nowhere'", "language model's folder", "model=./FOLDER"});
  refused("hearth train tiny.yaml device=cuda", {"device", "'cuda'", "cpu, gpu, gpu:0", "try device=gpu"});
  refused(kNoModules + "hearth train tiny.yaml device=gpu",
          {"needs a module for GPUs", "tools/build --gpu hip"});
  refused(kNoModules + "hearth train tiny.yaml device=gpu devices=2",
          {"needs a module for GPUs", "tools/build --gpu hip"});
  refused("hearth train tiny.yaml device=emulated:3", {"device=emulated:3", "0 emulated GPU 0"});
  refused("export HEARTH_EMULATED=20 && hearth train tiny.yaml device=emulated",
          {"HEARTH_EMULATED", "20GiB,20GiB"});
  refused("export HEARTH_EMULATED='1GiB;broken=' && hearth train tiny.yaml device=emulated",
          {"HEARTH_EMULATED", "broken"});
  refused("hearth train tiny.yaml device=emulated:0 devices=2", {"device=emulated"});
  refused("hearth train tiny.yaml device=emulated devices=2", {"expected 2 discrete GPUs", "devices=1"});
  refused("hearth train tiny.yaml devices=2 supervise=false", {"supervise=true", "mpirun -n 2"});
  refused("hearth train tiny.yaml devices=2 train.accumulate=3", {"train.accumulate=4"});
  refused("hearth train tiny.yaml devices=2 train.shards=6 train.accumulate=6", {"train.shards=2"});
  refused("hearth checkpoints nowhere", {"nowhere", "config.yaml"});
  refused("hearth train tiny.yaml device=emulated reserve=much", {"reserve", "'much'", "512MiB"});
  refused("hearth train tiny.yaml passes.off=[fuse_elementwize]", {"did you mean 'fuse_elementwise'?"});
  put("bad.yaml", "model:\n  name: mlp\ntrain:\n  bacth: 3\n");
  refused("hearth train bad.yaml", {"bad.yaml:4", "\"train.bacth\"", "did you mean 'train.batch'?"});
  refused("hearth validate bad.yaml", {"bad.yaml:4"});
  put("bad.yaml", "train: 5\n");
  refused("hearth train bad.yaml", {"bad.yaml:1", "keys of the section 'train'", "'5'"});
}

TEST_F(Mistakes, InYaml) {
  put("bad.yaml", "train: {batch: 3\n");
  refused("hearth train bad.yaml", {"expected YAML", "bad.yaml:2"});
  put("bad.yaml", "model: {name: mlp}\ntrain: \x80\x81\xfe\n");
  refused("hearth train bad.yaml", {"UTF-8", "bad.yaml:2"});
  put("bad.yaml", std::string("\0\1\2", 3));
  refused("hearth train bad.yaml", {"UTF-8", "bad.yaml:1"});
  put("bad.yaml", "a: " + std::string(100000, '['));
  refused("hearth train bad.yaml", {"256", "brackets", "bad.yaml"});
  put("bad.yaml", std::string(2 << 20, ' '));
  refused("hearth train bad.yaml", {"1048576 bytes", "2097152", "bad.yaml"});
}

TEST_F(Mistakes, InSizes) {
  refused("hearth train tiny.yaml data.image_size=1000000", {"4 to 4096", "data.image_size", "'1000000'"});
  refused("hearth train tiny.yaml train.batch=99999999999999", {"1 to 1048576", "train.batch"});
  refused("hearth train tiny.yaml model.hidden=[0]", {"model.hidden", "got 0"});
  // Terabytes: the images are made on demand.
  const std::string huge = "data.image_size=4096 data.count=1000000 train.batch=1000000";
  refused("hearth train tiny.yaml --out run " + huge, {"are free", "1000000", "TiB", "train.batch"});
  EXPECT_FALSE(has("run"));
  refused("hearth train tiny.yaml --out run memory=1KiB", {"arena", "memory"});
}

TEST_F(Mistakes, InFolders) {
  refused("hearth eval runs/none", {"'runs/none'", "ls runs lists the runs here"});
  refused("hearth export runs/none --out x.onnx", {"there is no model, run or adapter at 'runs/none'"});
  refused("hearth train", {"a recipe or a folder of data", "hearth train demo"});
  refused("hearth train --resume", {"--resume needs --out"});
  refused("hearth train --resume --out none", {"config.yaml", "'none'"});
  refused("hearth train tiny.yaml --out tiny.yaml", {"tiny.yaml", "folder"});
  refused("hearth train tiny.yaml --out tiny.yaml/run", {"tiny.yaml/run", "folder"});
  refused("hearth train tiny.yaml --out /proc/hearth", {"/proc/hearth"});
  refused("hearth eval none", {"config.yaml", "'none'"});
  refused("hearth predict none a.png", {"config.yaml", "'none'"});
  refused("hearth cp demo /proc/hearth.yaml", {"/proc/hearth.yaml"});
  refused("hearth plan tiny.yaml --svg /proc/plan.svg", {"/proc/plan.svg"});
  // Places to write to are found before what is read.
  refused("hearth pack none.csv --out /proc/packed.csv", {"cannot write to /proc/packed.csv"});
  refused("hearth train tiny.yaml init=none.safetensors --out /proc/hearth",
          {"cannot write to /proc/hearth"});
  refused("hearth train tiny.yaml init=none.safetensors --out run --dump-gradients none/g.safetensors",
          {"cannot write to none/g.safetensors"});
  EXPECT_FALSE(has("run"));
  EXPECT_EQ(get("tiny.yaml"), kTiny);
  works("hearth train tiny.yaml --out run");
  const std::string weights = get("run/model.safetensors");
  refused("hearth train tiny.yaml --out run", {"run already contains a run", "--resume"});
  refused("hearth generate run -p x",
          {"a language model", "'run' is the run of an image model", "hearth predict run"});
  refused("hearth merge --adapter run --out merged", {"a LoRA adapter", "'run'", "adapter_config.json"});
  refused("hearth train tiny.yaml init=run/model.safetensors model.hidden=[17]",
          {"run/model.safetensors", "the same model"});
  put("model/model.safetensors", weights);
  refused("hearth train tiny.yaml --out model", {"model already contains a model; choose another --out"});
  for (const size_t size : {4, 12, 900}) {
    put("cut.safetensors", weights.substr(0, size));
    refused("hearth train tiny.yaml init=cut.safetensors", {"cut.safetensors", "incomplete or damaged"});
  }
  refused("hearth train run/config.yaml --out run --resume model.hidden=[17]",
          {"model.hidden cannot be changed when a run resumes", "[17]"});
  EXPECT_EQ(get("run/model.safetensors"), weights);
}

TEST_F(Mistakes, InIdxFiles) {
  const std::string train = "hearth train tiny.yaml data.kind=idx data.channels=1 data.path=mnist --out run";
  refused(train, {"data.path", "'mnist'"});
  fs::create_directories(at("mnist"));
  refused(train, {"train-images-idx3-ubyte", "mnist"});
  const std::string labels = idx_labels(4, std::string(4, '\1'));
  put_idx(idx_images(4, 8, 200), labels);
  refused(train, {"mnist/train-images-idx3-ubyte", "256", "200"});
  put_idx(idx_images(4, 8, 300), labels);
  refused(train, {"mnist/train-images-idx3-ubyte", "256", "300"});
  put_idx(idx_images(4, 0xffffffff, 300), labels);
  refused(train, {"mnist/train-images-idx3-ubyte", "4294967295"});
  put_idx("\x89PNG not idx", labels);
  refused(train, {"mnist/train-images-idx3-ubyte", "magic"});
  put_idx("abc", labels);
  refused(train, {"mnist/train-images-idx3-ubyte", "3 bytes"});
  put_idx(idx_images(4, 8, 256), idx_labels(3, std::string(3, '\1')));
  refused(train, {"mnist/train-labels-idx1-ubyte", "4", "3"});
  put_idx(idx_images(4, 8, 256), idx_labels(4, std::string("\1\1\1\77", 4)));
  refused(train, {"mnist has 64 classes", "model.num_classes is 10"});
  put_idx(idx_images(4, 9, 324), labels);
  refused(train, {"8", "9"});
  put_idx(idx_images(4, 8, 256), labels);
  works(train);
}

TEST_F(Mistakes, InImages) {
  put_images();
  const std::string train = "hearth train tiny.yaml data.kind=folder data.path=pictures model.num_classes=2 ";
  works(train + "--out run");
  EXPECT_THAT(works("hearth predict run pictures/test/dog/b.jpg"), testing::HasSubstr("dog"));
  for (const char* name : {"a.png", "b.jpg"}) {
    const std::string path = fmt::format("pictures/train/dog/{}", name);
    const std::string whole = get(path);
    cut(path, fs::file_size(at(path)) / 2);
    refused(train + "--out next", {path});
    refused("hearth validate tiny.yaml model.num_classes=2 data.kind=folder data.path=pictures", {"1 of 4"});
    refused("hearth predict run " + path, {path});
    put(path, "hello");
    refused(train + "--out other",
            {path, "this is not an image of a supported format; convert it to one (PNG"});
    put(path, whole);
  }
  // A header that promises 4 billion pixels of a side.
  std::string png = get("pictures/train/dog/a.png");
  png.replace(16, 4, "\x7f\xff\xff\xff");
  put("lying.png", png);
  refused("hearth predict run lying.png", {"lying.png"});
  refused("hearth predict run none.png", {"none.png"});
  fs::remove_all(at("pictures/test/dog"));
  refused(train + "--out last", {"class 'dog'", "pictures/test/dog"});
  refused("hearth train tiny.yaml data.kind=folder data.path=none", {"'none'"});
  refused("hearth train tiny.yaml data.kind=cifar10 data.path=pictures", {"pictures/data_batch_1.bin"});
}

TEST_F(Mistakes, InTensors) {
  const std::string train =
      "hearth train tiny.yaml data.kind=tensors data.path=tensors.safetensors --out run";
  std::vector<float> images(8 * 3 * 64, 0.5F);
  put_tensors(images, {0, 1, 2, 3, 4, 5, 6, 10});
  refused(train, {"tensors.safetensors", "10"});
  put_tensors(images, {0, 1, 2, 3, 4, 5, 6, -1});
  refused(train, {"tensors.safetensors", "-1"});
  images[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  put_tensors(images, {0, 1, 2, 3, 4, 5, 6, 7});
  refused(train, {"the loss is NaN", "step 1", "data"});
}

TEST_F(Mistakes, InWeights) {
  works("hearth train tiny.yaml --out run");
  const std::string weights = get("run/best.safetensors");
  const std::string image = "picture.png";
  put(image, data::encode_png(speckled(8, 8, 3)));
  const auto all_refuse = [&](const std::string& contents, const std::vector<std::string>& parts) {
    put("run/best.safetensors", contents);
    refused("hearth eval run", parts);
    refused("hearth predict run " + image, parts);
    refused("hearth train tiny.yaml --out next init=run/best.safetensors", parts);
  };
  all_refuse(weights.substr(0, weights.size() - 3), {"run/best.safetensors", "fc2.bias"});
  all_refuse(weights.substr(0, 50), {"run/best.safetensors", "header"});
  all_refuse("abc", {"run/best.safetensors", "3 bytes"});
  all_refuse(std::string("\0\0\0\0\0\0\0\20", 8) + weights.substr(8), {"run/best.safetensors", "header"});
  std::string wrong = weights;
  wrong.replace(wrong.find("fc1.weight"), 10, "fc7.weight");
  all_refuse(wrong, {"run/best.safetensors", "'fc1.weight'"});
  put("run/best.safetensors", weights);
  refused("hearth eval run model.hidden=[17]", {"run/best.safetensors", "[17, 192]", "[16, 192]"});
  refused("hearth train tiny.yaml init=none.safetensors", {"none.safetensors"});
  EXPECT_THAT(works("hearth eval run"), testing::HasSubstr("accuracy"));
}

TEST_F(Mistakes, InCheckpointsAreOnlyPassedOver) {
  works("hearth train tiny.yaml --out run");
  const std::string weights = get("run/model.safetensors");
  cut("run/checkpoints/step-000000006/memory.bin", 3);
  EXPECT_THAT(works("hearth train --resume --out run"),
              testing::HasSubstr("step-000000004 (step 4); passed over step-000000006: memory.bin is cut"));
  EXPECT_EQ(get("run/model.safetensors"), weights);
  put("run/checkpoints/step-000000006/manifest.json", "{");
  put("run/checkpoints/step-000000004/state.json", "{}");
  const std::string log = get("run/trainer_log.jsonl");
  refused("hearth train --resume --out run",
          {"run/checkpoints", "step-000000006: its manifest is damaged", "step-000000004: state.json"});
  EXPECT_EQ(get("run/model.safetensors"), weights);
  EXPECT_EQ(get("run/trainer_log.jsonl"), log);
  fs::remove_all(at("run/checkpoints"));
  EXPECT_THAT(works("hearth train --resume --out run"),
              testing::HasSubstr("no complete checkpoint in run: starting from the beginning"));
  EXPECT_EQ(get("run/model.safetensors"), weights);
}

TEST_F(Mistakes, InTheLearningRateStopTheRun) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const std::string run = "run-" + precision;
    refused(fmt::format("hearth train tiny.yaml --out {} train.steps=9 schedule.name=constant "
                        "optimizer.lr=900000 precision={}",
                        run, precision),
            {"training stopped", "at step", "first in ", " of ", run + "/checkpoints/step-00000000",
             "optimizer.lr"});
    int num_good = 0;
    std::istringstream log(get(run + "/trainer_log.jsonl"));
    for (std::string line; std::getline(log, line);) num_good += line.find("\"loss\":null") == line.npos;
    for (const auto& checkpoint : fs::directory_iterator(at(run + "/checkpoints"))) {
      // One that was made right before the loss broke would break it again.
      EXPECT_LT(std::stoi(checkpoint.path().filename().string().substr(5)), num_good) << precision;
    }
    EXPECT_FALSE(has(run + "/model.safetensors"));
    EXPECT_THAT(works("hearth train --resume optimizer.lr=0.000001 --out " + run),
                testing::AllOf(testing::HasSubstr("resuming from " + run + "/checkpoints/step-00000000"),
                               testing::HasSubstr("done: 9 steps")));
  }
}

TEST_F(Mistakes, InTheLearningRateLeaveNoBadCheckpoint) {
  // The first update makes weights that float16 cannot hold: the loss scale is lowered in vain.
  refused("hearth train tiny.yaml --out run train.steps=40 optimizer.lr=900000 precision=fp16",
          {"the loss is NaN", "first in cast of fc1.weight", "there is no earlier checkpoint"});
  EXPECT_TRUE(fs::is_empty(at("run/checkpoints")));
  works("hearth train tiny.yaml --out run precision=fp16");
}

TEST_F(Mistakes, InFirstWeightsAreNamed) {
  works("hearth train tiny.yaml --out run");
  std::string weights = get("run/model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(weights.data() + weights.size() - 10 * sizeof(float), &nan, sizeof(nan));
  put("nan.safetensors", weights);
  refused("hearth train tiny.yaml --out next train.accumulate=2 init=nan.safetensors",
          {"nan.safetensors", "finite", "fc2.bias"});
  put("run/best.safetensors", weights);
  put("a.png", data::encode_png(speckled(8, 8, 3)));
  refused("hearth eval run", {"finite", "run/best.safetensors"});
  refused("hearth predict run a.png", {"finite", "run/best.safetensors"});
}

TEST_F(Mistakes, InPackFiles) {
  refused("hearth pack none.csv", {"none.csv"});
  put("bad.csv", "id,lower,upper\n");
  refused("hearth pack bad.csv", {"bad.csv:1", "id,lower,upper,size"});
  put("bad.csv", "id,lower,upper,size\na,1,0,5\n");
  refused("hearth pack bad.csv", {"bad.csv:2"});
  put("bad.csv", "id,lower,upper,size\na,0,1,99999999999999999999\n");
  refused("hearth pack bad.csv", {"bad.csv:2"});
}

}  // namespace
}  // namespace hearth
