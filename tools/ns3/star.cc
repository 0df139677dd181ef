// The star of `crates/sim/examples/ns3/main.rs` in ns-3: the same links, queues, TCP and flows.
//
// It reads flows (`start in ns,from,to,bytes`, a line each), and writes how long each took, in ns,
// in the same order: from being written until its last byte is read. What it has counted and used
// of a CPU goes to its standard output.
//
// A frame is 1502 B here where Ethernet's takes 1538 B of a wire, and 54 B where that takes 90 B: the
// difference is the gap between frames, and comes to the delay of the link.

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <fstream>
#include <iostream>
#include <map>
#include <sys/resource.h>
#include <vector>

using namespace ns3;

namespace
{
// Of a frame, in bytes: what Ethernet has more than PPP, and full ones here and there.
constexpr uint32_t GAP = 36;
constexpr double FULL = 1502.0;
constexpr double FULL_ETHERNET = 1538.0;
// Of the same, what a queue disc counts.
constexpr double FULL_IP = 1500.0;
constexpr uint16_t PORT = 5000;
// Connections are opened so long before their flows begin.
const Time LEAD = MilliSeconds(20);

struct Flow
{
    Time start;
    uint32_t from;
    uint32_t to;
    uint64_t size;
    uint64_t read = 0;
    Time took = Time(-1);
    Ptr<Socket> sender;
    Ptr<Socket> receiver;
    bool open = false;
};

struct Options
{
    std::string flows;
    std::string took;
    uint32_t hosts = 16;
    std::string rate = "1Gbps";
    Time delay = MicroSeconds(20);
    uint32_t buffer = 0;
    // 0: nothing is marked, and TCP is NewReno.
    uint32_t markAt = 0;
    bool sack = false;
    uint32_t initialWindow = 10;
    uint32_t receiveWindow = 64 << 20;
    Time leastTimeout = MilliSeconds(10);
    Time delayedAck = MilliSeconds(1);
    uint32_t segment = 1448;
};

class Star
{
  public:
    explicit Star(const Options& options);
    void Run();
    void Tell(const Options& options) const;

  private:
    void Connect(uint32_t host, const Options& options, Ptr<Node> router);
    void Open(size_t number);
    void Begin(size_t number);
    void Accept(Ptr<Socket> socket, const Address& from);
    void Read(size_t number, Ptr<Socket> socket);
    void ChangeTimeout(Time before, Time now);

    std::vector<Flow> m_flows;
    std::vector<Ptr<Node>> m_hosts;
    std::vector<Ipv4Address> m_addresses;
    std::vector<Ptr<PointToPointNetDevice>> m_devices;
    std::vector<Ptr<QueueDisc>> m_discs;
    std::vector<Ptr<Socket>> m_listeners;
    // By the address and the port that a flow's sender has.
    std::map<std::pair<uint32_t, uint16_t>, size_t> m_number;
    size_t m_ended = 0;
    // Flows whose connections were not open when they began.
    size_t m_late = 0;
    // Retransmission timeouts of data: a timeout doubles the next one.
    uint64_t m_timeouts = 0;
    double m_seconds = 0;
};

void
Defaults(const Options& options)
{
    const bool dctcp = options.markAt > 0;
    // Without SACK a window grows by acknowledgements (RFC 5681), with it by what they acknowledge,
    // as in Linux: each as in tailbound.
    const auto reno = options.sack ? TcpLinuxReno::GetTypeId() : TcpNewReno::GetTypeId();
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(dctcp ? TcpDctcp::GetTypeId() : reno));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(options.sack ? TcpPrrRecovery::GetTypeId()
                                                : TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(options.sack));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(false));
    // The timeout is the smoothed round trip and at least this, as in Linux.
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(options.leastTimeout));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(options.leastTimeout));
    Config::SetDefault("ns3::TcpSocketBase::MaxSegLifetime", DoubleValue(0.01));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(options.segment));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(options.initialWindow));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(options.delayedAck));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1U << 30));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(options.receiveWindow));
    Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(MilliSeconds(2)));
}

Star::Star(const Options& options)
{
    std::ifstream file(options.flows);
    NS_ABORT_MSG_UNLESS(file, "cannot read " << options.flows);
    uint64_t start;
    char comma;
    Flow flow;
    while (file >> start >> comma >> flow.from >> comma >> flow.to >> comma >> flow.size)
    {
        flow.start = LEAD + NanoSeconds(start);
        m_flows.push_back(flow);
    }
    NS_ABORT_MSG_UNLESS(file.eof(), options.flows << ": not start,from,to,bytes");
    InternetStackHelper stack;
    // Routes are few: the host's own, and one for each link of the router.
    stack.SetRoutingHelper(Ipv4StaticRoutingHelper());
    stack.SetIpv6StackInstall(false);
    auto router = CreateObject<Node>();
    stack.Install(router);
    for (uint32_t host = 0; host < options.hosts; ++host)
    {
        m_hosts.push_back(CreateObject<Node>());
        stack.Install(m_hosts.back());
        Connect(host, options, router);
    }
    for (uint32_t host = 0; host < options.hosts; ++host)
    {
        auto listener = Socket::CreateSocket(m_hosts[host], TcpSocketFactory::GetTypeId());
        listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
        listener->Listen();
        listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                    MakeCallback(&Star::Accept, this));
        m_listeners.push_back(listener);
    }
    for (size_t number = 0; number < m_flows.size(); ++number)
    {
        Simulator::Schedule(m_flows[number].start - LEAD, &Star::Open, this, number);
        Simulator::Schedule(m_flows[number].start, &Star::Begin, this, number);
    }
}

void
Star::Connect(uint32_t host, const Options& options, Ptr<Node> router)
{
    const DataRate rate(options.rate);
    const Time gap = rate.CalculateBytesTxTime(GAP);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", DataRateValue(rate));
    link.SetDeviceAttribute("InterframeGap", TimeValue(gap));
    link.SetChannelAttribute("Delay", TimeValue(options.delay + gap));
    TrafficControlHelper control;
    if (options.markAt > 0)
    {
        // One frame waits in the device, behind the disc.
        const auto inDisc = [](uint32_t bytes) { return FULL_IP * (bytes / FULL_ETHERNET - 1); };
        const QueueSize most(QueueSizeUnit::BYTES, uint32_t(inDisc(options.buffer)));
        link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1p"));
        control.SetRootQueueDisc("ns3::RedQueueDisc",
                                 "MaxSize",
                                 QueueSizeValue(most),
                                 "MinTh",
                                 DoubleValue(inDisc(options.markAt)),
                                 "MaxTh",
                                 DoubleValue(inDisc(options.markAt)),
                                 "QW",
                                 DoubleValue(1),
                                 "Gentle",
                                 BooleanValue(false),
                                 "UseEcn",
                                 BooleanValue(true),
                                 "UseHardDrop",
                                 BooleanValue(false));
    }
    else
    {
        const QueueSize most(QueueSizeUnit::BYTES, uint32_t(options.buffer * (FULL / FULL_ETHERNET)));
        link.SetQueue("ns3::DropTailQueue", "MaxSize", QueueSizeValue(most));
        // A device that may stop who sends has what comes meanwhile lost, uncounted.
        link.DisableFlowControl();
    }
    const auto devices = link.Install(m_hosts[host], router);
    for (uint32_t side = 0; side < devices.GetN(); ++side)
    {
        m_devices.push_back(DynamicCast<PointToPointNetDevice>(devices.Get(side)));
        if (options.markAt > 0)
        {
            m_discs.push_back(control.Install(devices.Get(side)).Get(0));
        }
    }
    Ipv4AddressHelper addresses;
    const uint32_t subnet = (10U << 24) + (host << 8);
    addresses.SetBase(Ipv4Address(subnet), Ipv4Mask("255.255.255.0"));
    auto interfaces = addresses.Assign(devices);
    m_addresses.push_back(interfaces.GetAddress(0));
    Ipv4StaticRoutingHelper routing;
    auto routes = routing.GetStaticRouting(m_hosts[host]->GetObject<Ipv4>());
    routes->SetDefaultRoute(interfaces.GetAddress(1), 1);
}

void
Star::Open(size_t number)
{
    auto& flow = m_flows[number];
    flow.sender = Socket::CreateSocket(m_hosts[flow.from], TcpSocketFactory::GetTypeId());
    flow.sender->TraceConnectWithoutContext("RTO", MakeCallback(&Star::ChangeTimeout, this));
    flow.sender->Bind();
    Address own;
    flow.sender->GetSockName(own);
    const uint16_t port = InetSocketAddress::ConvertFrom(own).GetPort();
    m_number[{m_addresses[flow.from].Get(), port}] = number;
    flow.sender->Connect(InetSocketAddress(m_addresses[flow.to], PORT));
}

void
Star::Begin(size_t number)
{
    auto& flow = m_flows[number];
    m_late += flow.open ? 0 : 1;
    const auto sent = flow.sender->Send(Create<Packet>(flow.size), 0);
    NS_ABORT_MSG_IF(sent < 0 || uint64_t(sent) != flow.size, "a flow did not fit its buffer");
}

void
Star::Accept(Ptr<Socket> socket, const Address& from)
{
    const auto address = InetSocketAddress::ConvertFrom(from);
    const auto number = m_number.at({address.GetIpv4().Get(), address.GetPort()});
    m_flows[number].receiver = socket;
    m_flows[number].open = true;
    socket->SetRecvCallback(MakeCallback(&Star::Read, this).Bind(number));
}

void
Star::Read(size_t number, Ptr<Socket> socket)
{
    auto& flow = m_flows[number];
    while (auto packet = socket->Recv())
    {
        flow.read += packet->GetSize();
    }
    if (flow.read < flow.size || flow.took >= Time(0))
    {
        return;
    }
    flow.took = Simulator::Now() - flow.start;
    // Its last acknowledgement is there by then, and it does not count any more.
    Simulator::Schedule(LEAD, &Socket::Close, flow.sender);
    Simulator::Schedule(LEAD, &Socket::Close, socket);
    flow.sender = nullptr;
    flow.receiver = nullptr;
    m_ended += 1;
    if (m_ended == m_flows.size())
    {
        Simulator::Stop();
    }
}

void
Star::ChangeTimeout(Time before, Time now)
{
    m_timeouts += now == before + before ? 1 : 0;
}

double
OnTheCpu()
{
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& it) { return double(it.tv_sec) + 1e-6 * it.tv_usec; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void
Star::Run()
{
    const double before = OnTheCpu();
    Simulator::Run();
    m_seconds = OnTheCpu() - before;
}

void
Star::Tell(const Options& options) const
{
    uint64_t events = 0;
    uint64_t dropped = 0;
    uint64_t marked = 0;
    for (const auto& device : m_devices)
    {
        const auto queue = device->GetQueue();
        events += queue->GetTotalReceivedPackets() - queue->GetNPackets();
        dropped += queue->GetTotalDroppedPackets();
    }
    for (const auto& disc : m_discs)
    {
        dropped += disc->GetStats().nTotalDroppedPackets;
        marked += disc->GetStats().nTotalMarkedPackets;
    }
    std::ofstream file(options.took);
    for (const auto& flow : m_flows)
    {
        file << flow.took.GetNanoSeconds() << '\n';
    }
    file.close();
    NS_ABORT_MSG_UNLESS(file, "cannot write " << options.took);
    std::cout << "ended " << m_ended << "\nlate " << m_late << "\nevents " << events << "\ndropped " << dropped
              << "\nmarked " << marked << "\ntimeouts " << m_timeouts << "\nseconds " << m_seconds << std::endl;
}
} // namespace

int
main(int argc, char* argv[])
{
    Options options;
    CommandLine line(__FILE__);
    line.AddValue("flows", "flows: start in ns,from,to,bytes", options.flows);
    line.AddValue("took", "where to write how long each took, in ns", options.took);
    line.AddValue("hosts", "hosts", options.hosts);
    line.AddValue("rate", "of each link", options.rate);
    line.AddValue("delay", "of each link", options.delay);
    line.AddValue("buffer", "of a port of the switch, in bytes on the wire", options.buffer);
    line.AddValue("mark-at", "the same that marks; DCTCP, if it is not 0", options.markAt);
    line.AddValue("sack", "SACK and PRR, and not duplicate acknowledgements", options.sack);
    line.AddValue("initial-window", "in segments", options.initialWindow);
    line.AddValue("receive-window", "in bytes", options.receiveWindow);
    line.AddValue("least-timeout", "of retransmission", options.leastTimeout);
    line.AddValue("delayed-ack", "how long one is held back", options.delayedAck);
    line.AddValue("segment", "data of a full segment, in bytes", options.segment);
    line.Parse(argc, argv);
    Defaults(options);
    Star star(options);
    star.Run();
    star.Tell(options);
    Simulator::Destroy();
    return 0;
}
