// What encoders make, for autoencoder.py and text_encoders.py, in FOLDER/found.safetensors:
//   encoder_outputs autoencoder FOLDER   of vae/ and inputs.safetensors: moments, images, and gradients
//   encoder_outputs picture FOLDER       of vae/, picture.png and inputs.safetensors: latents, and an image
//   encoder_outputs text FOLDER TOKENS   of the models in FOLDER and the lines of captions.txt: text, pooled
#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "encoders/image_coder.h"
#include "encoders/text_coder.h"
#include "engine/inspect.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "models/autoencoder/autoencoder.h"
#include "tensors.h"

namespace {

using namespace hearth;

/// As in parity.py: Winograd rounds too coarsely.
constexpr bool kWinograd = false;

/// Encodes images and decodes latents, which are of one size; the loss of a sample is the sum of both
/// results times given numbers.
class BothWays : public engine::Objective {
 public:
  BothWays(models::AutoencoderConfig config, const Shape& images, const Shape& latents)
      : config_(std::move(config)), images_(images), latents_(latents) {}

  Graph build(nn::Builder& builder, engine::BatchShape) const override {
    const auto input = [&](const char* name, const Shape& shape) {
      return builder.input(name, {.dtype = DType::f32, .shape = shape});
    };
    const int64_t n = images_[0];
    const Shape moments = {n, latents_[1], latents_[2], 2 * latents_[3]};
    const ir::ValueId x = input("pictures", images_), z = input("latents", latents_),
                      wx = input("of_moments", moments), wz = input("of_pictures", images_);
    const ir::ValueId encoded = models::build_image_encoder(builder, config_, x);
    const ir::ValueId decoded = models::build_image_decoder(builder, config_, z);
    const auto dot = [&](ir::ValueId a, ir::ValueId b) {
      return builder.op("row_dot", {builder.flatten(a), builder.flatten(b)});
    };
    const ir::ValueId loss = builder.add(dot(encoded, wx), dot(decoded, wz));
    Graph made{.inputs = {x, z, wx, wz},
               .losses = builder.op("reshape", {loss}, {{"shape", std::vector<int64_t>{n}}})};
    if (builder.mode() == nn::Builder::Mode::eval) made.outputs = {encoded, decoded};
    return made;
  }

 private:
  models::AutoencoderConfig config_;
  Shape images_, latents_;
};

void run_autoencoder(const fs::path& folder) {
  const io::SafetensorsFile file(folder / "inputs.safetensors");
  const GivenTensor images(file, "pictures"), latents(file, "latents"), of_moments(file, "of_moments"),
      of_images(file, "of_pictures");
  const int64_t rows = images.shape[0];
  const auto config = models::read_autoencoder_config(folder / "vae/config.json");
  engine::Engine engine({.objective = std::make_shared<BothWays>(config, images.shape, latents.shape),
                         .batch = rows,
                         .num_threads = 2,
                         .winograd = kWinograd},
                        std::vector{rows}, std::vector{rows});
  hub::load_weights(engine, folder / "vae/diffusion_pytorch_model.safetensors");
  const engine::MicroBatch batch{{{"pictures", images.values.data()},
                                  {"latents", latents.values.data()},
                                  {"of_moments", of_moments.values.data()},
                                  {"of_pictures", of_images.values.data()}},
                                 rows};
  Found found;
  engine.evaluate(batch);
  found.add("moments", of_moments.shape, engine.output(0));
  found.add("pictures", of_images.shape, engine.output(1));
  engine::Inspector(engine).gradients(batch, 1, [&](const nn::Tensor& tensor, std::span<const float> values) {
    found.add("gradient." + tensor.name, tensor.layout.file_shape, values);
  });
  found.write(folder);
}

void run_image(const fs::path& folder) {
  const io::SafetensorsFile file(folder / "inputs.safetensors");
  const GivenTensor latents(file, "latents");
  const std::string png = read_file(folder / "picture.png");
  encoders::ImageCoder coder(folder / "vae", std::nullopt, {.num_threads = 2, .winograd = kWinograd}, 0);
  const data::Image image = data::decode_image(std::as_bytes(std::span(png)), 0, "picture.png");
  const Extent size{latents.shape[1], latents.shape[2]};
  const data::Image decoded =
      coder.decode(std::span(latents.values).first(static_cast<size_t>(latents.shape.num_elements())), size);
  const std::vector<float> encoded = coder.encode(image);
  const std::vector<float> levels(decoded.pixels.begin(), decoded.pixels.end());
  Found found;
  found.add("latents", {coder.channels(), image.height / coder.factor(), image.width / coder.factor()},
            encoded);
  found.add("picture", {decoded.height, decoded.width, 3}, levels);
  found.write(folder);
}

void run_text(const fs::path& folder, int64_t num_tokens) {
  const std::string lines = read_file(folder / "captions.txt");
  std::vector<std::string> captions;
  for (std::string_view rest = lines; !rest.empty();) captions.emplace_back(take_line(rest));
  encoders::TextCoder coder(folder, num_tokens, {.num_threads = 2, .winograd = kWinograd});
  Found found;
  coder.encode(captions, [&](size_t i, std::span<const float> text, std::span<const float> pooled) {
    found.add(fmt::format("text.{}", i), {num_tokens, coder.text_width()}, text);
    found.add(fmt::format("pooled.{}", i), {coder.pooled_width()}, pooled);
  });
  found.write(folder);
}

}  // namespace

int main(int, char** argv) {
  try {
    const std::string mode = argv[1];
    if (mode == "autoencoder") run_autoencoder(argv[2]);
    if (mode == "picture") run_image(argv[2]);
    if (mode == "text") run_text(argv[2], std::stoll(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
