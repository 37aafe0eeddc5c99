// Models that make images: trained, resumed, shared out, and asked for images.
#include <sstream>

#include "data/images/image.h"
#include "program.h"
#include "tiny_weights.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Diffuse : public Program {
 protected:
  Diffuse() {
    put("flux.json", R"({"_class_name": "FluxTransformer2DModel", "in_channels": 48, "latent_patch": 4,
"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16,
"joint_attention_dim": 8, "pooled_projection_dim": 8, "axes_dims_rope": [4, 4, 8], "num_classes": 10,
"class_tokens": 2})");
    put("dit.json", R"({"_class_name": "DiTTransformer2DModel", "in_channels": 3, "patch_size": 4,
"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16, "sample_size": 16, "out_channels": 6,
"num_embeds_ada_norm": 10})");
    put("flux.yaml", recipe("flux.json", "flow"));
    put("dit.yaml", recipe("dit.json", "epsilon"));
  }
  static std::string recipe(const char* config, const char* objective) {
    return fmt::format(R"(model: {{config: {}}}
data: {{kind: shapes, image_size: 16, count: 64, val_count: 8}}
train: {{objective: {}, steps: 6, batch: 8, checkpoint_every: 2, eval_every: 3, ema: 0.5}}
diffuse: {{steps: 2, val_images: 4}}
optimizer: {{name: adamw, lr: 0.01}}
threads: 1
)",
                       config, objective);
  }
};

TEST_F(Diffuse, RunsEndWithImagesAndTheirReport) {
  for (const char* name : {"flux", "dit"}) {
    const std::string out = works(fmt::format("hearth train {0}.yaml --out {0}", name));
    EXPECT_THAT(out, AllOf(HasSubstr("64 training and 8 validation images of 10 classes, 16x16 pixels"),
                           HasSubstr("step 6: validation loss "), HasSubstr("1 images in samples/")));
    EXPECT_TRUE(has(fmt::format("{}/samples/step-000003-classes.png", name)));
    EXPECT_EQ(count_of(get(fmt::format("{}/report.html", name)), "data:image/png"), 2U);
    EXPECT_EQ(get(fmt::format("{}/classes.txt", name)).substr(0, 7), "circle\n");
  }
}

TEST_F(Diffuse, LearnWhatTheySee) {
  const auto first_and_last = [&](const char* recipe) {
    works(
        fmt::format("rm -rf run && hearth train {} --out run train.steps=150 train.eval_every=150 "
                    "train.eval_on_start=true train.ema=0",
                    recipe));
    const std::string log = get("run/trainer_log.jsonl"), key = "\"eval_loss\":";
    return std::pair(std::stod(log.substr(log.find(key) + key.size())), last_eval_loss("run"));
  };
  for (const char* recipe : {"flux.yaml", "dit.yaml", "dit.yaml train.objective=v"}) {
    const auto [first, last] = first_and_last(recipe);
    EXPECT_LT(last, 0.75 * first) << recipe;
  }
}

TEST_F(Diffuse, SeveralWorkersMakeTheSameBits) {
  works("hearth train flux.yaml --out one train.shards=4");
  for (const char* devices : {"2", "4"}) {
    works(fmt::format("rm -rf more && hearth train flux.yaml --out more train.shards=4 devices={}", devices));
    EXPECT_TRUE(get("one/model.safetensors") == get("more/model.safetensors")) << devices;
    EXPECT_TRUE(get("one/samples/step-000006-classes.png") == get("more/samples/step-000006-classes.png"));
  }
}

TEST_F(Diffuse, ResumeToTheBit) {
  works("hearth train flux.yaml --out whole");
  works(
      "hearth train flux.yaml --out parts && rm -rf parts/checkpoints/step-000000006 "
      "&& hearth train --resume --out parts");
  EXPECT_TRUE(get("whole/model.safetensors") == get("parts/model.safetensors"));
  EXPECT_TRUE(get("whole/samples/step-000006-classes.png") == get("parts/samples/step-000006-classes.png"));
}

TEST_F(Diffuse, ImagesDependOnTheirSeedAlone) {
  works("hearth train flux.yaml --out run && hearth train dit.yaml --out dit");
  works("hearth generate run --prompt star --seed 7 --count 3 --out three.png");
  works("hearth generate run --prompt star --seed 8 --out one.png --threads 2");
  // The files differ by nothing: both say seed 8.
  EXPECT_TRUE(get("three-2.png") == get("one.png"));
  EXPECT_THAT(get("one.png"), AllOf(HasSubstr("prompt"), HasSubstr("star"), HasSubstr("guidance")));
  works("hearth generate dit --prompt star --solver dpm --steps 5 --out dpm.png");
  works("hearth generate dit --prompt star --steps 5 --out ddim.png");
  EXPECT_FALSE(get("dpm.png") == get("ddim.png"));
}

TEST_F(Diffuse, FilesAreWhatTheirNamesSay) {
  works("hearth train flux.yaml --out run train.steps=1");
  const std::string generate = "hearth generate run --prompt star --seed 7 --out ";
  works(generate + "star.png && " + generate + "star.jpg && " + generate + "star.JPEG");
  EXPECT_THAT(get("star.jpg"), AllOf(StartsWith("\xff\xd8\xff"), HasSubstr("prompt: star\n")));
  EXPECT_EQ(get("star.jpg"), get("star.JPEG"));
  const auto pixels = [&](const char* name) {
    const std::string file = get(name);
    return data::decode_image(std::as_bytes(std::span(file)), 3, name).pixels;
  };
  const std::vector<uint8_t> png = pixels("star.png"), jpeg = pixels("star.jpg");
  ASSERT_EQ(png.size(), jpeg.size());
  int64_t sum = 0;
  for (size_t i = 0; i < png.size(); ++i) sum += std::abs(png[i] - jpeg[i]);
  EXPECT_LT(sum, 12 * std::ssize(png));
  refused(generate + "star.webp", {"--out NAME.png or NAME.jpg", "star.webp"});
  refused("hearth export run --out d.onnx", {"'run' generates images", "--out FOLDER", "not as onnx"});
  refused("hearth export run --out d.pt", {"'d.pt'", "a folder", "use --out d"});
  EXPECT_FALSE(has("d.onnx") || has("d.pt") || has("star.webp"));
}

TEST_F(Diffuse, ModelsOfTwoImagesAreNamed) {
  for (const auto& [factor, name] :
       {std::pair(6, "FLUX.1-Fill"), std::pair(2, "FLUX.1-Canny or FLUX.1-Depth")}) {
    std::string config = get("flux.json");
    const std::string channels = R"("in_channels": 48)";
    config.replace(config.find(channels), channels.size(),
                   fmt::format(R"("in_channels": {}, "out_channels": 48)", 48 * factor));
    put("tool.json", config);
    refused("hearth train flux.yaml model.config=tool.json --out tool",
            {"tool.json", name, "flux-lora", "klein-lora"});
    refused("hearth validate flux.yaml model.config=tool.json", {"tool.json", name});
  }
}

TEST_F(Diffuse, WithoutGuidanceThePromptSaysNothing) {
  works("hearth train dit.yaml --out dit");
  const auto made = [&](const char* prompt, int guidance) {
    works(fmt::format("hearth generate dit --prompt {} --guidance {} --out a.png", prompt, guidance));
    const std::string png = get("a.png");
    return data::decode_image(std::as_bytes(std::span(png)), 3, "a.png").pixels;
  };
  EXPECT_EQ(made("star", 0), made("circle", 0));
  EXPECT_NE(made("star", 50), made("circle", 50));
}

TEST_F(Diffuse, RunsAreEvaluatedAndRecipesChecked) {
  works("hearth train flux.yaml --out run");
  EXPECT_THAT(works("hearth eval run"), HasSubstr(fmt::format("{:.4f}", last_eval_loss("run"))));
  EXPECT_THAT(works("hearth validate flux.yaml --out other"), HasSubstr("the recipe is well-formed"));
  EXPECT_THAT(works("hearth plan flux.yaml"), HasSubstr("parameters"));
}

TEST_F(Diffuse, MistakesAreOneSentence) {
  refused("hearth train flux-lora", {"config.json of a denoiser", "FLUX.1-dev", "there is no"});
  refused("hearth train flux.yaml model.config=none.json", {"config.json of a model", "none.json"});
  refused("hearth train flux.yaml data.kind=captions data.path=.", {"data.kind folder, idx", "got captions"});
  refused("hearth train flux.yaml data.image_size=18",
          {"multiples of 4", "got 18x18", "try data.image_size=16"});
  refused("hearth train flux.yaml diffuse.prompts=[stern]", {"got 'stern'", "star"});
  refused("hearth train flux.yaml diffuse.judged=8 data.count=40",
          {"at least 64 training images", "got 40", "try diffuse.judged=0"});
  works("hearth train flux.yaml --out run");
  refused("hearth generate run --prompt stern", {"got 'stern'", "did you mean 'star'"});
  refused("hearth generate run --prompt star --solver ddim", {"--solver euler", "objective flow"});
  refused("hearth generate run --prompt star --max-tokens 3", {"--max-tokens", "generates images"});
  refused("hearth generate run", {"--prompt"});
  put("a.png",
      data::encode_png({.height = 4, .width = 4, .channels = 1, .pixels = std::vector<uint8_t>(16)}));
  refused("hearth predict run a.png", {"'run' generates images", "hearth generate run"});
  refused("hearth generate run --prompt star --size 17", {"multiples of 4"});
}

/// A DiT in the latents of an autoencoder, 4 x 4 of 4 channels.
class LatentDiffuse : public Diffuse {
 protected:
  LatentDiffuse() {
    write_tiny_autoencoder(at("vae"), 4);
    put("latent.json", R"({"_class_name": "DiTTransformer2DModel", "in_channels": 4, "patch_size": 2,
"num_layers": 1, "num_attention_heads": 4, "attention_head_dim": 16, "sample_size": 4, "out_channels": 4,
"num_embeds_ada_norm": 10})");
    put("latent.yaml", R"(model: {config: latent.json, autoencoder: vae}
data: {kind: shapes, image_size: 16, count: 64, val_count: 8, flip: true, cache: cache}
train: {objective: flow, steps: 6, batch: 8, checkpoint_every: 2, eval_every: 3, ema: 0.5}
diffuse: {steps: 2, val_images: 4}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)");
  }
  int64_t num_cached() const {
    return std::distance(fs::directory_iterator(at("cache")), {}) - (has("cache/.lock") ? 1 : 0);
  }
  std::string get_line(const std::string& name, int number) const {
    std::istringstream lines(get(name));
    std::string line;
    for (int i = 0; i <= number; ++i) std::getline(lines, line);
    return line;
  }
  data::Image image(const std::string& name) const {
    const std::string png = get(name);
    return data::decode_image(std::as_bytes(std::span(png)), 0, name);
  }
};

TEST_F(LatentDiffuse, ImagesAreEncodedOnceAndSamplesDecoded) {
  const std::string out = works("hearth train latent.yaml --out run");
  EXPECT_THAT(out, AllOf(HasSubstr("64 training and 8 validation images of 10 classes, 16x16 pixels"),
                         HasSubstr("encoding 132 images into cache"), HasSubstr("1 images in samples/")));
  EXPECT_EQ(num_cached(), 132) << "mirrored ones too, and held-out ones that are looked at";
  const data::Image grid = image("run/samples/step-000006-classes.png");
  EXPECT_EQ(grid.size(), Extent(4 * 17 - 1, 10 * 17 - 1));
  EXPECT_EQ(grid.channels, 3);
  EXPECT_THAT(works("hearth train latent.yaml --out again"), Not(HasSubstr("encod")));
  EXPECT_TRUE(get("run/model.safetensors") == get("again/model.safetensors"));
  works("rm $(ls -d cache/latents-* | head -3)");
  EXPECT_THAT(works("hearth train latent.yaml --out third"), HasSubstr("encoding 3 images"));
  EXPECT_TRUE(get("run/model.safetensors") == get("third/model.safetensors"));
}

TEST_F(LatentDiffuse, LearnsWhatItSees) {
  works(
      "hearth train latent.yaml --out run train.steps=150 train.eval_every=150 train.eval_on_start=true "
      "train.ema=0 diffuse.judged=64");
  const std::string log = get("run/trainer_log.jsonl"), key = "\"eval_loss\":";
  EXPECT_LT(last_eval_loss("run"), 0.75 * std::stod(log.substr(log.find(key) + key.size())));
  EXPECT_THAT(log, HasSubstr("class_agreement"));
}

TEST_F(LatentDiffuse, BitsDependNeitherOnWorkersNorOnStops) {
  works("hearth train latent.yaml --out one train.shards=4");
  for (const char* devices : {"2", "4"}) {
    works(fmt::format("rm -rf more cache && hearth train latent.yaml --out more train.shards=4 devices={}",
                      devices));
    EXPECT_TRUE(get("one/model.safetensors") == get("more/model.safetensors")) << devices;
    EXPECT_TRUE(get("one/samples/step-000006-classes.png") == get("more/samples/step-000006-classes.png"));
  }
  works(
      "hearth train latent.yaml --out whole && hearth train latent.yaml --out parts "
      "&& rm -rf parts/checkpoints/step-000000006 cache && hearth train --resume --out parts");
  EXPECT_TRUE(get("whole/model.safetensors") == get("parts/model.safetensors"));
  EXPECT_TRUE(get("whole/samples/step-000006-classes.png") == get("parts/samples/step-000006-classes.png"));
}

TEST_F(LatentDiffuse, GpusEncodeBeforeTheyTrain) {
  works("hearth train latent.yaml --out here data.cache=here-cache train.shards=2");
  const std::string out = works(
      "export HEARTH_EMULATED=1GiB,1GiB && hearth train latent.yaml --out there device=emulated devices=2");
  EXPECT_EQ(count_of(out, "encoding 132 images"), 1U) << out;
  EXPECT_EQ(num_cached(), 132);
  EXPECT_NEAR(last_eval_loss("there"), last_eval_loss("here"), 1e-5);
  const auto cached = [&](const char* folder) {
    return works(fmt::format("cat $(ls {}/latents-*) | sha256sum", folder));
  };
  EXPECT_NE(cached("cache"), cached("here-cache")) << "a GPU rounds otherwise";
}

TEST_F(LatentDiffuse, FlippedImagesAreLearnedFrom) {
  works("hearth train latent.yaml --out flipped && hearth train latent.yaml --out straight data.flip=false");
  EXPECT_FALSE(get("flipped/model.safetensors") == get("straight/model.safetensors"));
  EXPECT_EQ(num_cached(), 132);
}

TEST_F(LatentDiffuse, GrayImagesAreResizedAndRepeated) {
  const auto big_endian = [](std::initializer_list<int> numbers) {
    std::string bytes;
    for (const int number : numbers)
      for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
    return bytes;
  };
  for (const auto& [name, count] : {std::pair("train", 64), {"t10k", 8}}) {
    std::string labels = big_endian({0x801, count}), pixels = big_endian({0x803, count, 28, 28});
    for (int i = 0; i < count; ++i) labels += static_cast<char>(i % 10);
    for (int i = 0; i < 28 * 28 * count; ++i) pixels += static_cast<char>(i * 7 % 251);
    put(fmt::format("mnist/{}-labels-idx1-ubyte", name), labels);
    put(fmt::format("mnist/{}-images-idx3-ubyte", name), pixels);
  }
  const std::string out = works(
      "hearth train latent.yaml --out gray data.kind=idx data.path=mnist data.channels=1 diffuse.judged=16");
  EXPECT_THAT(out, AllOf(HasSubstr("encoding 132 images"), HasSubstr("of 10 classes, 16x16 pixels")));
  EXPECT_EQ(image("gray/samples/step-000006-classes.png").channels, 3);
  EXPECT_THAT(get("gray/trainer_log.jsonl"), HasSubstr("class_agreement"));
}

TEST_F(LatentDiffuse, RunsAreAskedEvaluatedAndPlanned) {
  EXPECT_THAT(works("hearth validate latent.yaml"),
              HasSubstr("16x16 pixels; 132 latents are not encoded yet"));
  EXPECT_FALSE(has("cache"));
  works("hearth train latent.yaml --out run");
  works("hearth generate run --prompt star --seed 7 --count 2 --out two.png");
  works("hearth generate run --prompt star --seed 8 --out one.png --threads 2");
  EXPECT_TRUE(get("two-2.png") == get("one.png"));
  EXPECT_EQ(image("one.png").size(), Extent(16));
  EXPECT_THAT(works("hearth eval run"), HasSubstr(fmt::format("{:.4f}", last_eval_loss("run"))));
  EXPECT_THAT(works("hearth validate latent.yaml --out other"), HasSubstr("the recipe is well-formed"));
  works("mv vae elsewhere");
  refused("hearth generate run --prompt star", {"config.json of an autoencoder", "vae", "there is no"});
  works("hearth generate run --prompt star --seed 8 --out moved.png model.autoencoder=elsewhere");
  EXPECT_TRUE(get("moved.png") == get("one.png"));
  EXPECT_THAT(works("hearth plan latent.yaml model.autoencoder= data.image_size=32"),
              HasSubstr("parameters"));
}

TEST_F(LatentDiffuse, FoldersOfDiffusersAreAskedByTheNamesOfTheirClasses) {
  works("hearth train latent.yaml --out run train.objective=epsilon");
  put("dit/model_index.json", R"({"_class_name": "DiTPipeline", "id2label": {"3": "tench, Tinca tinca",
"4": "crane", "5": "crane"}})");
  put("dit/scheduler/scheduler_config.json",
      R"({"_class_name": "DDIMScheduler", "beta_schedule": "linear"})");
  works(
      "mkdir dit/transformer && cp -r vae dit/vae && cp latent.json dit/transformer/config.json && "
      "cp run/best.safetensors dit/transformer/diffusion_pytorch_model.safetensors");
  const auto made = [&](const std::string& model, const std::string& prompt) {
    works(fmt::format("hearth generate {} --prompt '{}' --guidance 30 --steps 3 --out a.png", model, prompt));
    return image("a.png").pixels;
  };
  const auto third = made("dit", "tench");
  EXPECT_EQ(third, made("run", get_line("run/classes.txt", 3)));
  EXPECT_EQ(third, made("dit", "Tinca tinca"));
  EXPECT_EQ(third, made("dit", "3"));
  EXPECT_EQ(made("dit", "crane"), made("dit", "5")) << "as diffusers has it";
  EXPECT_NE(made("dit", "crane"), made("dit", "4"));
  EXPECT_EQ(image("a.png").size(), Extent(16));
  refused("hearth generate dit --prompt tensh", {"got 'tensh'", "did you mean 'tench'"});
  refused("hearth generate dit --prompt tench --size 32", {"4 x 4", "sample_size", "got 8 x 8"});
  put("dit/model_index.json", R"({"_class_name": "DiTPipeline", "id2label": {"10": "crane"}})");
  refused("hearth generate dit --prompt crane", {"classes 0 to 9", "\"10\": \"crane\""});
  put("dit/scheduler/scheduler_config.json", R"({"beta_schedule": "scaled_linear"})");
  refused("hearth generate dit --prompt 1", {"beta_schedule linear", "got epsilon and scaled_linear"});
  // Where a model has its autoencoder beside it, training finds it.
  EXPECT_THAT(works("hearth train latent.yaml --out more model.config= model.autoencoder= model.path=dit"),
              Not(HasSubstr("encod")));
}

TEST_F(LatentDiffuse, MistakesAreOneSentence) {
  refused("hearth train latent.yaml model.autoencoder=", {"4 channels", "try model.autoencoder=FOLDER"});
  refused("hearth train latent.yaml model.autoencoder=none",
          {"config.json of an autoencoder", "none", "try model.autoencoder=FOLDER"});
  refused("hearth train latent.yaml data.image_size=20", {"multiples of 8", "got 20x20", "try 16x16"});
  refused("hearth train latent.yaml data.image_size=32", {"sample_size", "got 8 x 8"});
  refused("hearth train latent.yaml data.kind=captions data.path=.", {"data.kind folder, idx"});
  write_tiny_autoencoder(at("wide"), 16);
  refused("hearth train latent.yaml model.autoencoder=wide",
          {"the autoencoder has 16 channels", "expects 4", "wide"});
  works("hearth train latent.yaml --out run");
  const std::string file = works("ls cache | head -1");
  const std::string cached = "cache/" + file.substr(0, file.size() - 1);
  std::string bytes = get(cached);
  bytes.back() = static_cast<char>(bytes.back() + 1);
  put(cached, bytes);
  refused("hearth train latent.yaml --out damaged train.steps=40", {"the file is damaged", cached});
  works("rm vae/diffusion_pytorch_model.safetensors");
  refused("hearth train latent.yaml",
          {"weights of the autoencoder are missing", "vae/diffusion_pytorch_model.safetensors"});
  refused("hearth generate run --prompt star", {"weights of the autoencoder are missing"});
}

}  // namespace
}  // namespace hearth
