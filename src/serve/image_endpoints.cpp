#include "serve/image_endpoints.h"

#include <ctime>
#include <random>

#include "base/error.h"
#include "data/images/image.h"
#include "io/html.h"
#include "serve/json_fields.h"

namespace hearth::serve {
namespace {

using text::Json;

/// Max pixels of an image for /predict. Decoding and sliding windows need memory in proportion to the number
/// of pixels.
constexpr int64_t kMaxPixels = 32 << 20;
constexpr int64_t kMaxImages = 10, kMaxSteps = 1000;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void predict(const net::Exchange& exchange, run::PredictSession& session) {
  const net::ServerRequest& request = exchange->request();
  const std::span<const std::byte> bytes = bytes_of(request.body);
  if (bytes.empty()) user_error("the body is empty; send an image file ({})", data::kImageFormats);
  const data::ImageHeader header = data::read_image_header(bytes, "image");
  if (header.stored().num_pixels() > kMaxPixels)
    user_error("the image has {} x {} pixels, but at most {} pixels are allowed; send a smaller image",
               header.width, header.height, kMaxPixels);
  const tasks::ImagePrediction prediction = session.analyze(bytes, "image");
  const std::string* format = request.query_value("format");
  if (format != nullptr && *format == "png") {
    if (prediction.mask_png.empty())
      user_error("format=png is for models that predict masks, but this one does not; remove it");
    return exchange->reply({.type = "image/png", .body = prediction.mask_png});
  }
  Json answer = {{"width", header.upright().width}, {"height", header.upright().height}};
  if (!prediction.classes.empty()) {
    answer["classes"] = Json::array();
    for (const auto& [name, share] : prediction.classes)
      answer["classes"].push_back({{"name", name}, {"share", share}});
  }
  if (prediction.has_boxes) {
    answer["boxes"] = Json::array();
    for (const tasks::PredictedBox& box : prediction.boxes) {
      answer["boxes"].push_back({{"name", box.name},
                                 {"score", box.score},
                                 {"x", box.x},
                                 {"y", box.y},
                                 {"width", box.width},
                                 {"height", box.height}});
    }
  }
  if (!prediction.mask_png.empty()) answer["mask_png"] = io::base64(prediction.mask_png);
  exchange->reply({.body = dumped(answer)});
}

void generate(const net::Exchange& exchange, run::ImageSession& session, const std::string& model) {
  const Json body = parse_body(exchange->request().body);
  const std::string name = string_field(body, "model", model);
  if (name != model)
    throw net::HttpFault{404, "there is no model '" + name + "'; GET /v1/models lists the names"};
  for (const auto& [field, value] : {std::pair("response_format", "b64_json"),
                                     std::pair("output_format", "png"), std::pair("size", "auto")}) {
    if (const std::string given = string_field(body, field, value); given != value)
      user_error("{}: only {} is supported, got '{}'", field, value, given);
  }
  if (bool_field(body, "stream", false)) user_error("stream: not supported for images; remove it");
  run::ImageRequest request;
  request.prompt = string_field(body, "prompt", "");
  if (request.prompt.empty()) user_error("prompt: expected a string that describes the image");
  request.count = integer_field(body, "n", 1, 1, kMaxImages);
  request.steps = integer_field(body, "steps", 0, 0, kMaxSteps);
  if (field_of(body, "guidance") != nullptr) request.guidance = number_field(body, "guidance", 0, 0, 100);
  request.seed =
      static_cast<uint64_t>(integer_field(body, "seed", std::random_device()(), 0, int64_t{1} << 53));
  Json images = Json::array();
  for (const run::GeneratedImage& generated : session.generate(request))
    images.push_back(
        {{"b64_json", io::base64(data::with_texts(data::encode_png(generated.image), generated.settings))}});
  exchange->reply(
      {.body = dumped({{"created", std::time(nullptr)}, {"data", images}, {"seed", request.seed}})});
}

}  // namespace

void add_predict_endpoint(net::HttpServer& server, run::PredictSession& session, TaskThread& thread) {
  server.on("POST", "/predict", [&](const net::Exchange& exchange) {
    thread.post(exchange, [&](const net::Exchange& posted) { predict(posted, session); });
  });
}

void add_generation_endpoint(net::HttpServer& server, run::ImageSession& session, TaskThread& thread,
                             const std::string& model) {
  server.on("POST", "/v1/images/generations", [&, model](const net::Exchange& exchange) {
    thread.post(exchange,
                [&session, model](const net::Exchange& posted) { generate(posted, session, model); });
  });
}

}  // namespace hearth::serve
