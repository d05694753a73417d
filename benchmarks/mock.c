// Ground-truth OpenAI SSE mock server. One thread, epoll, constant-delay FIFO timers.
// Logs CLOCK_MONOTONIC ns just before every chunk's write(2) (python time.perf_counter/monotonic use the same clock).
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#define MAXFD 65536
// A request counts as received at the kernel's stamp (SO_TIMESTAMPNS), so that this server's own lag is not in the truth.
static int64_t now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return t.tv_sec*1000000000LL+t.tv_nsec;}
typedef struct { int64_t accept,recv,role,*send; int n,osl; int64_t done; int first_on_conn; char rid[80]; } Req;
static Req *reqs; static int nreq,capreq;
typedef struct { int fd,alive; char *in; int inlen,incap; int busy; int req; int sent,phase; char *out; int outlen,outoff,outcap; int wantout; int64_t accept; int nreqs; int64_t due,rx; int usage,chat,stream; int gen; int inzero;} Conn;
static Conn *C[MAXFD]; static int ep;
static int64_t TTFT=0,ITL=0; static int OSL=0,BURST=1,ROLE_EARLY=0,TPC=1,USAGE=1,NOROLE=0,PROMPT_TOK=100,BADCOUNT=0,STALL_EVERY=0; static int64_t STALL=0;
typedef struct {int fd,gen; int64_t due;} QE; typedef struct {QE*a; size_t h,t,cap;} Q; static Q qt,qi; 
static int *zlist,*zgen,*zlist2,*zgen2; static int zn; static int gencnt=1;
static void qpush(Q*q,int fd,int gen,int64_t due){ if(q->t-q->h>=q->cap){ size_t oc=q->cap,nc=oc?oc*2:4096; QE*n=malloc(nc*sizeof(QE)); for(size_t i=0;i<q->t-q->h;i++)n[i]=q->a[(q->h+i)&(oc-1)]; q->t-=q->h;q->h=0; free(q->a);q->a=n;q->cap=nc;} q->a[q->t++&(q->cap-1)]=(QE){fd,gen,due}; }
static const char*WORDS[]={" the"," cat"," and"," dog"," run"," to"," a"," house"," in"," time"," with"," red"," sun"," on"," for"," water"};
static int64_t total_tokens; static int active,peak; static int64_t t_first,t_last_ev;
static void outp(Conn*c,const char*b,int n){ if(c->outlen+n>c->outcap){ if(c->outoff){memmove(c->out,c->out+c->outoff,c->outlen-c->outoff);c->outlen-=c->outoff;c->outoff=0;} while(c->outlen+n>c->outcap){c->outcap=c->outcap?c->outcap*2:4096;} c->out=realloc(c->out,c->outcap);} memcpy(c->out+c->outlen,b,n);c->outlen+=n; }
static void kill_conn(Conn*c){ if(!c->alive)return; c->alive=0; if(c->busy){active--;} epoll_ctl(ep,EPOLL_CTL_DEL,c->fd,0); close(c->fd); C[c->fd]=0; free(c->in);free(c->out);free(c);} 
static void ev(Conn*c,int out){ struct epoll_event e={.events=EPOLLIN|EPOLLRDHUP|(out?EPOLLOUT:0),.data.fd=c->fd}; epoll_ctl(ep,EPOLL_CTL_MOD,c->fd,&e); c->wantout=out; }
static int flush(Conn*c){ while(c->outoff<c->outlen){ ssize_t w=write(c->fd,c->out+c->outoff,c->outlen-c->outoff); if(w<0){ if(errno==EAGAIN){ if(!c->wantout)ev(c,1); return 0;} return -1;} c->outoff+=w;} c->outoff=c->outlen=0; if(c->wantout)ev(c,0); return 1; }
static void sse(Conn*c,const char*p,int n){ char h[16]; int k=sprintf(h,"%x\r\n",n+8); outp(c,h,k); outp(c,"data: ",6); outp(c,p,n); outp(c,"\n\n\r\n",4);} 
static int head(Conn*c,char*b){ return sprintf(b,"{\"id\":\"chatcmpl-mock%08d\",\"object\":\"%s\",\"created\":1790000000,\"model\":\"mock\",",c->req,c->chat?"chat.completion.chunk":"text_completion"); }
static void role(Conn*c){ if(!c->chat||NOROLE)return; char b[512];int n=head(c,b); n+=sprintf(b+n,"\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}"); reqs[c->req].role=now(); sse(c,b,n);} 
static void token(Conn*c){ Req*r=&reqs[c->req]; char b[2048];int n=head(c,b); char w[1024];int k=0; int m=TPC; if(c->sent+m>r->osl)m=r->osl-c->sent; for(int i=0;i<m;i++)k+=sprintf(w+k,"%s",WORDS[(c->sent+i)&15]); 
  if(c->chat)n+=sprintf(b+n,"\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%s\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",w);
  else n+=sprintf(b+n,"\"choices\":[{\"index\":0,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",w);
  r->send[r->n++]=now(); sse(c,b,n); c->sent+=m; total_tokens+=m; }
static void finish(Conn*c){ Req*r=&reqs[c->req]; char b[1024];int n=head(c,b); if(c->chat)n+=sprintf(b+n,"\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":null}"); else n+=sprintf(b+n,"\"choices\":[{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}],\"usage\":null}"); sse(c,b,n);
  if(USAGE){ n=head(c,b); n+=sprintf(b+n,"\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}",PROMPT_TOK,PROMPT_TOK+r->osl,r->osl); sse(c,b,n);} sse(c,"[DONE]",6); outp(c,"0\r\n\r\n",5); r->done=now(); c->busy=0; active--; }
static void zadd(Conn*c){ zlist[zn]=c->fd; zgen[zn++]=c->gen; }
static void try_parse(Conn*c);
static void advance(Conn*c,int64_t t){ // a due token
  Req*r=&reqs[c->req]; if(c->phase==0){ if(!ROLE_EARLY)role(c); c->phase=1; }
  if(ITL==0){ if(c->outlen-c->outoff>0){ if(flush(c)<0){kill_conn(c);return;} if(c->outlen){ zadd(c);return;} }
    for(int i=0;i<BURST&&c->sent<r->osl;i++)token(c); if(c->sent>=r->osl)finish(c); int f=flush(c); if(f<0){kill_conn(c);return;} if(c->busy){ if(f==1) zadd(c); else c->inzero=1; } }
  else { token(c); if(c->sent>=r->osl)finish(c); if(flush(c)<0){kill_conn(c);return;} if(c->busy){ int64_t d=ITL*( TPC); if(STALL_EVERY&&(r->n%STALL_EVERY)==0){} c->due+=d; if(0&&t)c->due=t+d; qpush(&qi,c->fd,c->gen,c->due);} }
  if(!c->busy) try_parse(c);
}
static void start(Conn*c,const char*body,int64_t t){ if(nreq>=capreq){fprintf(stderr,"reqs full\n");exit(1);} Req*r=&reqs[nreq]; memset(r,0,sizeof*r); c->req=nreq++; r->accept=c->accept; r->recv=t; r->first_on_conn=(c->nreqs==0); c->nreqs++; int osl=OSL; if(!osl){ const char*p=strstr(body,"\"max_completion_tokens\""); if(!p)p=strstr(body,"\"max_tokens\""); if(p){p=strchr(p,':'); osl=atoi(p+1);} if(osl<=0)osl=16;} r->osl=osl; r->send=malloc(sizeof(int64_t)*(osl+1)); c->sent=0;c->phase=0;c->busy=1; c->gen=gencnt++; c->inzero=0; active++; if(active>peak)peak=active; if(!t_first)t_first=t;
  char h[]="HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"; outp(c,h,sizeof h-1); if(ROLE_EARLY)role(c); if(flush(c)<0){kill_conn(c);return;} c->due=t+TTFT; if(TTFT==0&&ITL==0)zadd(c); else qpush(&qt,c->fd,c->gen,c->due); }
static void reply(Conn*c,int code,const char*ct,const char*b,int n){ char h[256]; int k=sprintf(h,"HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n",code,code==200?"OK":"Not Found",ct,n); outp(c,h,k); outp(c,b,n); if(flush(c)<0){kill_conn(c);} }
static int cmp64(const void*a,const void*b){int64_t x=*(int64_t*)a,y=*(int64_t*)b;return x<y?-1:x>y;}
static void stat_json(char*o){ int64_t ns=0; for(int i=0;i<nreq;i++)ns+=reqs[i].n; int64_t*d=malloc(8*(ns+nreq+1)); int64_t*tt=malloc(8*(nreq+1)); size_t m=0; int k=0; int64_t last=0; int nc=0; for(int i=0;i<nreq;i++){Req*r=&reqs[i]; nc+=r->first_on_conn; if(r->n){tt[k++]=r->send[0]-r->recv; if(r->send[r->n-1]>last)last=r->send[r->n-1];} for(int j=1;j<r->n;j++)d[m++]=r->send[j]-r->send[j-1];} qsort(d,m,8,cmp64);qsort(tt,k,8,cmp64); struct rusage u; getrusage(RUSAGE_SELF,&u);
 sprintf(o,"{\"requests\":%d,\"done_active\":%d,\"peak\":%d,\"conns\":%d,\"tokens\":%ld,\"wall_s\":%.6f,\"first_ns\":%ld,\"last_ns\":%ld,\"ttft_p50_us\":%.1f,\"ttft_p99_us\":%.1f,\"ttft_max_us\":%.1f,\"itl_p50_us\":%.1f,\"itl_p99_us\":%.1f,\"itl_max_us\":%.1f,\"cpu_s\":%.3f}",nreq,active,peak,nc,(long)total_tokens,nreq?(last-t_first)/1e9:0,(long)t_first,(long)last,k?tt[k/2]/1e3:0,k?tt[k*99/100]/1e3:0,k?tt[k-1]/1e3:0,m?d[m/2]/1e3:0,m?d[m*99/100]/1e3:0,m?d[m-1]/1e3:0,u.ru_utime.tv_sec+u.ru_stime.tv_sec+(u.ru_utime.tv_usec+u.ru_stime.tv_usec)/1e6); free(d);free(tt);} 
static void dump(const char*p){ FILE*f=fopen(p,"wb"); if(!f)return; for(int i=0;i<nreq;i++){Req*r=&reqs[i]; int64_t h[6]={r->accept,r->recv,r->role,r->done,r->n,r->first_on_conn}; fwrite(h,8,6,f); char rid[80]={0}; memcpy(rid,r->rid,79); fwrite(rid,1,80,f); fwrite(r->send,8,r->n,f);} fclose(f);} 
static void try_parse(Conn*c){ while(!c->busy && c->inlen>0){ char*e=memmem(c->in,c->inlen,"\r\n\r\n",4); if(!e)return; int hl=e-c->in+4; char save=c->in[hl-1]; c->in[hl-1]=0; char*cl=strcasestr(c->in,"\ncontent-length:"); int bl=cl?atoi(cl+16):0; int chunked=strcasestr(c->in,"\ntransfer-encoding: chunked")!=0; int expect=strcasestr(c->in,"\nexpect: 100")!=0; char*ridp=strcasestr(c->in,"\nx-request-id:"); char rid[80]={0}; if(ridp){ridp+=14;while(*ridp==' ')ridp++; int i=0; while(i<79&&ridp[i]&&ridp[i]!='\r')rid[i]=ridp[i],i++;} c->in[hl-1]=save; 
  if(expect&&c->inlen==hl){ if(write(c->fd,"HTTP/1.1 100 Continue\r\n\r\n",25)<0){} }
  int tot; if(chunked){ char*z=memmem(c->in+hl,c->inlen-hl,"\r\n0\r\n\r\n",7); if(!z)return; tot=z+7-c->in; bl=tot-hl;} else { tot=hl+bl; if(c->inlen<tot)return; }
  int64_t t=c->rx?c->rx:now(); char m[8],path[512]; m[0]=0;path[0]=0; sscanf(c->in,"%7s %511s",m,path); char*body=malloc(bl+1); memcpy(body,c->in+hl,bl); body[bl]=0; memmove(c->in,c->in+tot,c->inlen-tot); c->inlen-=tot; 
  if(!strcmp(m,"POST")&&(strstr(path,"/chat/completions")||strstr(path,"/completions"))){ c->chat=strstr(path,"/chat/")!=0; char*s=strstr(body,"\"stream\""); int st=0; if(s){s=strchr(s,':')+1; while(*s==' ')s++; st=*s=='t';} if(st){ start(c,body,t); if(C[c->fd]==c&&c->alive){ memcpy(reqs[c->req].rid,rid,80);} free(body); return;} 
     char b[512]; int n=sprintf(b,"{\"id\":\"x\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\" the\"},\"text\":\" the\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1,\"total_tokens\":%d}}",PROMPT_TOK,PROMPT_TOK+1); reply(c,200,"application/json",b,n); }
  else if(strstr(path,"/models")){ const char*b="{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1,\"owned_by\":\"mock\",\"max_model_len\":131072}]}"; reply(c,200,"application/json",b,strlen(b)); }
  else if(!strncmp(path,"/ctl/stat",9)){ char b[2048]; stat_json(b); reply(c,200,"application/json",b,strlen(b)); }
  else if(!strncmp(path,"/ctl/reset",10)){ for(int i=0;i<nreq;i++)free(reqs[i].send); nreq=0;total_tokens=0;peak=0;t_first=0; char*q=strchr(path,'?'); if(q){ char*p; if((p=strstr(q,"ttft_us=")))TTFT=atoll(p+8)*1000; if((p=strstr(q,"itl_us=")))ITL=atoll(p+7)*1000; if((p=strstr(q,"osl=")))OSL=atoi(p+4); if((p=strstr(q,"burst=")))BURST=atoi(p+6); if((p=strstr(q,"role_early=")))ROLE_EARLY=atoi(p+11); if((p=strstr(q,"tpc=")))TPC=atoi(p+4); if((p=strstr(q,"usage=")))USAGE=atoi(p+6); if((p=strstr(q,"norole=")))NOROLE=atoi(p+7);} reply(c,200,"application/json","{}",2); }
  else if(!strncmp(path,"/ctl/dump?",10)){ dump(path+10); reply(c,200,"application/json","{}",2); }
  else if(strstr(path,"/health")||strstr(path,"/flush_cache")||strstr(path,"/ping")||!strcmp(path,"/")) reply(c,200,"text/plain","ok",2);
  else if(strstr(path,"info")) reply(c,200,"application/json","{}",2);
  else reply(c,404,"application/json","{}",2);
  free(body); if(C[c->fd]!=c)return; } }
static ssize_t stamped_read(int fd,char*buf,size_t n,int64_t*at){ char ctl[64]; struct iovec v={buf,n}; struct msghdr h={.msg_iov=&v,.msg_iovlen=1,.msg_control=ctl,.msg_controllen=sizeof ctl}; ssize_t r=recvmsg(fd,&h,0);
  if(r>0){ struct cmsghdr*m=CMSG_FIRSTHDR(&h); if(m&&m->cmsg_level==SOL_SOCKET&&m->cmsg_type==SO_TIMESTAMPNS){ struct timespec k,w; memcpy(&k,CMSG_DATA(m),sizeof k); clock_gettime(CLOCK_REALTIME,&w); int64_t t=now()-((w.tv_sec-k.tv_sec)*1000000000LL+w.tv_nsec-k.tv_nsec); *at=t; } else *at=now(); } return r; }
int main(int ac,char**av){ int port=9100; for(int i=1;i+1<ac;i+=2){ char*k=av[i],*v=av[i+1]; if(!strcmp(k,"--port"))port=atoi(v); else if(!strcmp(k,"--ttft-us"))TTFT=atoll(v)*1000; else if(!strcmp(k,"--itl-us"))ITL=atoll(v)*1000; else if(!strcmp(k,"--osl"))OSL=atoi(v); else if(!strcmp(k,"--burst"))BURST=atoi(v);} 
 signal(SIGPIPE,SIG_IGN); capreq=400000; reqs=calloc(capreq,sizeof(Req)); zlist=malloc(4*1000000);zgen=malloc(4*1000000);zlist2=malloc(4*1000000);zgen2=malloc(4*1000000);
 int l=socket(AF_INET,SOCK_STREAM|SOCK_NONBLOCK,0),one=1; setsockopt(l,SOL_SOCKET,SO_REUSEADDR,&one,4); struct sockaddr_in a={.sin_family=AF_INET,.sin_port=htons(port),.sin_addr.s_addr=htonl(INADDR_LOOPBACK)}; if(bind(l,(void*)&a,sizeof a)||listen(l,8192)){perror("bind");return 1;} ep=epoll_create1(0); struct epoll_event e={.events=EPOLLIN,.data.fd=l}; epoll_ctl(ep,EPOLL_CTL_ADD,l,&e); static struct epoll_event evs[4096]; 
 for(;;){ int64_t t=now(); int to=-1; if(zn)to=0; else { int64_t d=-1; if(qt.h<qt.t)d=qt.a[qt.h&(qt.cap-1)].due; if(qi.h<qi.t){int64_t x=qi.a[qi.h&(qi.cap-1)].due; if(d<0||x<d)d=x;} if(d>=0){ int64_t w=d-t; to=w<=0?0:(int)(w/1000000); } }
  int n=epoll_wait(ep,evs,4096,to); 
  for(int i=0;i<n;i++){ int fd=evs[i].data.fd; if(fd==l){ for(;;){ int s=accept4(l,0,0,SOCK_NONBLOCK); if(s<0)break; if(s>=MAXFD){close(s);continue;} setsockopt(s,IPPROTO_TCP,TCP_NODELAY,&one,4); setsockopt(s,SOL_SOCKET,SO_TIMESTAMPNS,&one,4); Conn*c=calloc(1,sizeof*c); c->fd=s;c->alive=1;c->accept=now(); c->gen=gencnt++; C[s]=c; struct epoll_event x={.events=EPOLLIN|EPOLLRDHUP,.data.fd=s}; epoll_ctl(ep,EPOLL_CTL_ADD,s,&x);} continue;} 
   Conn*c=C[fd]; if(!c)continue; if(evs[i].events&EPOLLIN){ int dead=0; for(;;){ if(c->incap-c->inlen<4096){c->incap=c->incap?c->incap*2:8192;c->in=realloc(c->in,c->incap);} ssize_t r=stamped_read(fd,c->in+c->inlen,c->incap-c->inlen,&c->rx); if(r>0){c->inlen+=r; if(r<4096)break;} else if(r==0){dead=1;break;} else {if(errno!=EAGAIN)dead=1;break;} } if(dead){kill_conn(c);continue;} try_parse(c); if(C[fd]!=c)continue; } 
   else if(evs[i].events&(EPOLLHUP|EPOLLERR)){kill_conn(c);continue;}
   if(evs[i].events&EPOLLOUT){ int f=flush(c); if(f<0){kill_conn(c);continue;} if(f==1&&c->busy&&c->inzero){c->inzero=0;zadd(c);} if(f==1&&!c->busy)try_parse(c);} }
  t=now(); 
  while(qt.h<qt.t){ QE*q=&qt.a[qt.h&(qt.cap-1)]; if(q->due>t)break; QE x=*q; qt.h++; Conn*c=C[x.fd]; if(c&&c->busy&&c->gen==x.gen){ if(ITL==0)zadd(c); else advance(c,t);} t=now(); }
  while(qi.h<qi.t){ QE*q=&qi.a[qi.h&(qi.cap-1)]; if(q->due>t)break; QE x=*q; qi.h++; Conn*c=C[x.fd]; if(c&&c->busy&&c->gen==x.gen)advance(c,t); t=now(); }
  if(zn){ int m=zn; int*tl=zlist,*tg=zgen; zlist=zlist2;zgen=zgen2;zlist2=tl;zgen2=tg; zn=0; for(int i=0;i<m;i++){ Conn*c=C[tl[i]]; if(c&&c->busy&&c->gen==tg[i])advance(c,0);} }
 } }
